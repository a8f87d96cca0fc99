#include "plan/policy_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "plan/plan_cases.h"
#include "plan/step_time.h"

namespace longhaul {
namespace {

using config::ActivationPreset;

class PolicyChoice : public ::testing::Test {
 protected:
  [[nodiscard]] plan::MemoryRequest request(std::int64_t tokens, double limit,
                                            std::optional<double> host = std::nullopt) const {
    plan::MemoryRequest request{.model = &model_,
                                .registry = registry_,
                                .dtype = base::Dtype::kBFloat16,
                                .mesh = {},
                                .row_tokens = tokens,
                                .row_targets = tokens,
                                .on_gpu = true,
                                .limit_bytes = static_cast<std::int64_t>(limit),
                                .attended_length = static_cast<double>(tokens)};
    if (host) {
      request.host_limit_bytes = static_cast<std::int64_t>(*host);
    }
    return request;
  }
  static std::set<std::string> policies(const plan::MemoryPlan& plan) {
    std::set<std::string> seen;
    for (const config::LayerPolicy& policy : plan.policies) {
      const std::string text = plan::policy_text(std::span(&policy, 1));
      seen.insert(text.substr(2));
    }
    return seen;
  }
  static double work(const plan::MemoryPlan& plan) {
    double sum = 0;
    for (const config::LayerPolicy& policy : plan.policies) {
      sum += plan::rerun_share(policy.preset);
    }
    return sum;
  }

  config::ModelConfig model_ = testing::qwen_7b();
  std::vector<config::ParamSpec> registry_ = testing::lora_registry(model_);
};

using Names = std::set<std::string>;

TEST_F(PolicyChoice, KeepsEverythingWhereThereIsRoom) {
  EXPECT_EQ(policies(plan::choose_policies(request(16384, 127e9, 100e9))), Names{"A"});
}

TEST_F(PolicyChoice, OffloadsNothingWithoutAHostLimit) {
  for (const std::int64_t tokens : {65536, 131072, 262144}) {
    EXPECT_EQ(plan::choose_policies(request(tokens, 127e9)).bytes.host, 0);
  }
}

TEST_F(PolicyChoice, OffloadsNothingOnTheCpu) {
  plan::MemoryRequest cpu = request(65536, 127e9, 100e9);
  cpu.on_gpu = false;
  EXPECT_EQ(plan::choose_policies(cpu).bytes.host, 0);
}

TEST_F(PolicyChoice, RerunsLessWithAHostThanWithout) {
  for (const std::int64_t tokens : {65536, 131072, 262144}) {
    const plan::MemoryPlan alone = plan::choose_policies(request(tokens, 127e9));
    const plan::MemoryPlan with = plan::choose_policies(request(tokens, 127e9, 100e9));
    EXPECT_TRUE(with.fits);
    EXPECT_LT(work(with), work(alone)) << tokens;
    EXPECT_GT(with.bytes.host, 0) << tokens;
    EXPECT_LE(with.bytes.host, 100'000'000'000) << tokens;
    EXPECT_LE(with.bytes.total(), 127'000'000'000) << tokens;
  }
}

TEST_F(PolicyChoice, SendsAOnlyWhereAttentionHidesTheCopy) {
  // 2 · 106.6 KB per token at 52 GB/s are 4.1 µs; a layer's forward pass takes 0.8 µs and 12 ns per
  // thousand tokens seen: from 273K tokens on.
  const plan::MemoryPlan shorter = plan::choose_policies(request(200'000, 127e9, 4000e9));
  EXPECT_FALSE(policies(shorter).contains("A+offload"));
  const plan::MemoryPlan longer = plan::choose_policies(request(300'000, 300e9, 4000e9));
  EXPECT_TRUE(policies(longer).contains("A+offload"));
  EXPECT_EQ(work(longer), 0);
}

TEST_F(PolicyChoice, ShortDocumentsHideNoCopyOfB) {
  plan::MemoryRequest packed = request(131072, 127e9, 100e9);
  packed.attended_length = 1000;
  EXPECT_FALSE(policies(plan::choose_policies(packed)).contains("B+offload"));
  packed.attended_length = 131072;
  EXPECT_TRUE(policies(plan::choose_policies(packed)).contains("B+offload"));
}

TEST_F(PolicyChoice, OffloadsTheLowestLayers) {
  const plan::MemoryPlan plan = plan::choose_policies(request(131072, 127e9, 60e9));
  ASSERT_GT(plan.bytes.host, 0);
  const auto keeps = [](const config::LayerPolicy& policy) { return !policy.offload; };
  EXPECT_TRUE(std::is_partitioned(plan.policies.begin(), plan.policies.end(),
                                  [](const auto& policy) { return policy.offload; }));
  EXPECT_TRUE(std::any_of(plan.policies.begin(), plan.policies.end(), keeps));
}

TEST_F(PolicyChoice, CheckpointsGoToTheHostWhereNothingElseFits) {
  const plan::MemoryPlan alone = plan::choose_policies(request(700'000, 127e9));
  EXPECT_FALSE(alone.fits);
  const plan::MemoryPlan with = plan::choose_policies(request(700'000, 127e9, 128e9));
  EXPECT_TRUE(with.fits);
  EXPECT_GT(with.bytes.host, 0);
}

TEST_F(PolicyChoice, TakesTheFastestByPredictedTime) {
  const auto seconds = [](const plan::MemoryRequest& request, const plan::MemoryPlan& plan) {
    return plan::step_seconds(request, plan.policies, plan.form).total();
  };
  for (const std::int64_t tokens : {16384, 65536, 262144}) {
    for (const double limit : {40e9, 80e9, 127e9}) {
      const plan::MemoryRequest request = this->request(tokens, limit, 60e9);
      const plan::MemoryPlan alone = plan::choose_policies(this->request(tokens, limit));
      const plan::MemoryPlan with = plan::choose_policies(request);
      EXPECT_TRUE(!alone.fits || seconds(request, with) <= seconds(request, alone))
          << tokens << " " << limit;
    }
  }
  // Attention is what long rows spend their time on: with checkpoints of half the layers on the
  // host, fewer layers run it again than with those of as many layers as D sends there.
  const plan::MemoryPlan longest = plan::choose_policies(request(524288, 141e9, 30e9));
  const auto attends_again = [](const config::LayerPolicy& policy) {
    return policy.action(config::Slot::kAttnOut) == config::SlotAction::kRerun;
  };
  EXPECT_LE(std::count_if(longest.policies.begin(), longest.policies.end(), attends_again), 17);
}

TEST_F(PolicyChoice, SaysWhenNothingFits) {
  const plan::MemoryPlan plan = plan::choose_policies(request(32768, 10e9, 100e9));
  EXPECT_FALSE(plan.fits);
}

}  // namespace
}  // namespace longhaul
