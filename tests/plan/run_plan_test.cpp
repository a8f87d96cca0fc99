#include "plan/run_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/named_models.h"
#include "metrics/rates.h"
#include "plan/plan_cases.h"

namespace longhaul {
namespace {

class RunPlan : public ::testing::Test {
 protected:
  RunPlan() {
    config_.row_length = 32768;
    config_.memory.activation_policy = "auto";
  }
  [[nodiscard]] plan::RunPlanRequest request(std::int64_t tokens) const {
    return {.config = &config_,
            .model = &model_,
            .registry = registry_,
            .dtype = base::Dtype::kBFloat16,
            .data = {.largest_row = tokens,
                     .step_tokens = tokens,
                     .attended_length = static_cast<double>(tokens)},
            .device = *plan::find_device("h200")};
  }

  config::Config config_;
  config::ModelConfig model_ = testing::qwen_7b();
  std::vector<config::ParamSpec> registry_ = testing::lora_registry(model_);
};

TEST_F(RunPlan, LongestRowFitsAndTheNextDoesNot) {
  const std::int64_t longest = plan::make_run_plan(request(32768)).longest_row;
  ASSERT_GT(longest, 32768);
  EXPECT_TRUE(plan::make_run_plan(request(longest)).memory.fits);
  EXPECT_FALSE(plan::make_run_plan(request(longest + 256)).memory.fits);
}

TEST_F(RunPlan, LongestRowFollowsRanksAndLimits) {
  const std::int64_t one = plan::make_run_plan(request(32768)).longest_row;
  plan::RunPlanRequest small = request(32768);
  small.device.memory_bytes = 40'000'000'000;
  const std::int64_t limited = plan::make_run_plan(small).longest_row;
  EXPECT_GT(limited, 0);
  EXPECT_LT(limited, one / 2);
  plan::RunPlanRequest with_host = request(32768);
  with_host.host_limit_bytes = 128'000'000'000;
  EXPECT_GT(plan::make_run_plan(with_host).longest_row, 3 * one / 2);
  config_.mesh = {.dp = 1, .sp = 2};
  EXPECT_GT(plan::make_run_plan(request(32768)).longest_row, 7 * one / 4);
  config_.mesh = {.dp = 2, .sp = 1};  // every rank has rows of its own
  EXPECT_EQ(plan::make_run_plan(request(32768)).longest_row, one);
  plan::RunPlanRequest none = request(32768);
  none.device.memory_bytes = 10'000'000'000;
  EXPECT_EQ(plan::make_run_plan(none).longest_row, 0);
}

TEST_F(RunPlan, TimeOfAGpuIsThePredictedStep) {
  config_.memory.activation_policy = "A";
  const plan::RunPlan plan = plan::make_run_plan(request(32768));
  // Measured: 10,685 tokens/s (docs/benchmarks.md).
  EXPECT_NEAR(plan.pace.tokens_per_second, 10685, 0.1 * 10685);
  EXPECT_DOUBLE_EQ(plan.pace.step_seconds, plan.pace.parts.total());
  EXPECT_NEAR(plan.pace.step_seconds, 32768 / plan.pace.tokens_per_second, 1e-9);
}

TEST_F(RunPlan, TimeOfACpuFollowsTheFlopsFormula) {
  config_.memory.activation_policy = "A";
  plan::RunPlanRequest cpu = request(32768);
  cpu.device = plan::cpu_device(10, 400'000'000'000);
  const plan::RunPlan plan = plan::make_run_plan(cpu);
  // 4 · 7.0697e9 + 6 · 40.37e6 + 602,112 · 32768 FLOPs per token.
  const double flops = 4 * 7.0697e9 + 6 * 40.370176e6 + 602112.0 * 32768;
  EXPECT_NEAR(plan.pace.tokens_per_second, cpu.device.flops_per_s / flops,
              0.002 * plan.pace.tokens_per_second);
}

TEST_F(RunPlan, AStepHasTheTimeOfAllItsRows) {
  config_.memory.activation_policy = "D";
  const double one = plan::make_run_plan(request(8192)).pace.step_seconds;
  config_.accumulation = 4;
  config_.mesh = {.dp = 2, .sp = 1};
  plan::RunPlanRequest eight = request(8192);
  eight.data.step_tokens = 8 * 8192;
  const plan::Pace pace = plan::make_run_plan(eight).pace;
  EXPECT_NEAR(pace.step_seconds, 4 * one, 0.02 * one);
  EXPECT_NEAR(pace.tokens_per_second, 2 * 8192 / one, 0.02 * 8192 / one);
}

TEST_F(RunPlan, FewTargetsMakeShorterSteps) {
  config_.memory.activation_policy = "A";
  const double all = plan::make_run_plan(request(8192)).pace.step_seconds;
  plan::RunPlanRequest few = request(8192);
  few.data.target_share = 0.1;
  const double some = plan::make_run_plan(few).pace.step_seconds;
  // The head is 7 % of the products.
  EXPECT_LT(some, 0.96 * all);
  EXPECT_GT(some, 0.9 * all);
}

TEST_F(RunPlan, SaysHowLongTheRunTakesWhereStepsAreKnown) {
  const auto expected = [](const plan::RunPlanRequest& request) {
    for (const std::string& line : plan::plan_lines(request, plan::make_run_plan(request))) {
      if (line.starts_with("expected: ")) {
        return line;
      }
    }
    return std::string();
  };
  EXPECT_EQ(expected(request(32768)).find(" steps"), std::string::npos);
  EXPECT_EQ(expected(request(32768)).find("rough"), std::string::npos);
  config_.train.max_steps = 1000;
  EXPECT_NE(expected(request(32768)).find(" for 1,000 steps"), std::string::npos);
  plan::RunPlanRequest other = request(32768);
  other.device = *plan::find_device("a100-80");
  other.data.total_steps = 500;
  EXPECT_NE(expected(other).find(" for 500 steps (rough)"), std::string::npos);
}

TEST_F(RunPlan, TheTableOfChoicesHasEveryPreset) {
  const plan::RunPlan plan = plan::make_run_plan(request(65536));
  ASSERT_EQ(plan.choices.size(), 7U);
  EXPECT_EQ(plan.choices.front().policy, "A");
  EXPECT_FALSE(plan.choices.front().memory.fits);
  EXPECT_TRUE(plan.choices[3].memory.fits);  // D
  // What `auto` chose is faster than every preset that fits, and slower than A.
  EXPECT_GT(plan.choices.front().pace.tokens_per_second, plan.pace.tokens_per_second);
  for (const plan::PolicyOutcome& choice : plan.choices) {
    EXPECT_TRUE(!choice.memory.fits || choice.pace.tokens_per_second < plan.pace.tokens_per_second)
        << choice.policy;
  }
  const std::vector<std::string> lines = plan::plan_lines(request(65536), plan);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("  D+offload ") && line.find("does not fit") == std::string::npos;
  }));
  plan::RunPlanRequest cpu = request(1024);
  cpu.device = plan::cpu_device(2, 16'000'000'000);
  EXPECT_EQ(plan::make_run_plan(cpu).choices.size(), 5U);
}

/// Matrix-multiplied weights and the attention term of published models.
TEST(ModelSizes, GiveThePublishedWeightsAndAttentionTerms) {
  struct Published {
    const char* name;
    double weights;
    std::int64_t attention;
  };
  for (const Published& model :
       {Published{"qwen2.5-7b", 7.070e9, 602'112}, Published{"llama3.1-8b", 7.505e9, 786'432},
        Published{"qwen3-8b", 7.568e9, 884'736}}) {
    const metrics::ModelSizes sizes = plan::model_sizes(*config::find_named_model(model.name));
    EXPECT_NEAR(static_cast<double>(metrics::matrix_weights(sizes)), model.weights, 0.5e6)
        << model.name;
    EXPECT_EQ(metrics::attention_flops_per_length(sizes), model.attention) << model.name;
  }
}

TEST_F(RunPlan, SaysWhatAProcessHoldsBesideTheTensors) {
  const auto count = [](std::int64_t dp, std::int64_t sp, const char* fsdp) {
    config::Config config;
    config.mesh = {.dp = dp, .sp = sp};
    config.parallel.fsdp = fsdp;
    return plan::communicators(config);
  };
  EXPECT_EQ(count(1, 1, ""), 0);
  EXPECT_EQ(count(1, 2, ""), 1);
  EXPECT_EQ(count(2, 1, ""), 1);
  EXPECT_EQ(count(2, 2, ""), 3);
  EXPECT_EQ(count(1, 2, "fsdp2"), 2);
}

TEST_F(RunPlan, SaysWhatIsShardedAndCountsIt) {
  config_.mesh = {.dp = 1, .sp = 2};
  const auto text = [&] {
    const plan::RunPlan plan = plan::make_run_plan(request(32768));
    std::string lines;
    for (const std::string& line : plan::plan_lines(request(32768), plan)) {
      lines += line + "\n";
    }
    return lines;
  };
  EXPECT_EQ(text().find("sharding: "), std::string::npos);
  EXPECT_NE(text().find("= weights 15.31 GB"), std::string::npos) << text();
  config_.parallel.fsdp = "fsdp2";
  EXPECT_NE(text().find("sharding: frozen weights of the layers over 2 ranks"), std::string::npos);
  EXPECT_NE(text().find("= weights 9.72 GB"), std::string::npos) << text();
}

TEST_F(RunPlan, SaysWhenItDoesNotFitAndWhatWould) {
  plan::RunPlanRequest small = request(2'000'000);
  const plan::RunPlan plan = plan::make_run_plan(small);
  EXPECT_FALSE(plan.memory.fits);
  const std::vector<std::string> lines = plan::plan_lines(small, plan);
  const auto contains = [&](const std::string& text) {
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(contains("DOES NOT FIT"));
  EXPECT_TRUE(contains("longest row that fits"));
  EXPECT_TRUE(contains("unknown without --dataset"));
}

}  // namespace
}  // namespace longhaul
