#include "plan/memory_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/plan_cases.h"

namespace longhaul {
namespace {

class MemoryPlan : public ::testing::Test {
 protected:
  [[nodiscard]] plan::MemoryRequest request(std::int64_t tokens, const std::string& policy) const {
    return {.model = &model_,
            .registry = registry_,
            .dtype = base::Dtype::kBFloat16,
            .mesh = {},
            .row_tokens = tokens,
            .row_targets = tokens,
            .activation_policy = policy};
  }
  [[nodiscard]] double kept_per_token(const std::string& policy) const {
    constexpr std::int64_t kTokens = 65536;
    const plan::MemoryPlan plan = plan::make_memory_plan(request(kTokens, policy));
    return static_cast<double>(plan.bytes.activations) / static_cast<double>(kTokens);
  }

  config::ModelConfig model_ = testing::qwen_7b();
  std::vector<config::ParamSpec> registry_ = testing::lora_registry(model_);
};

TEST_F(MemoryPlan, CountsWhatEveryPresetKeepsPerToken) {
  // Hand-computed for 28 layers: x 7168 B; q,k,v 9216 B; O 7168 B; LSE 112 B; residual 7168 B; gate, up 75776 B; LoRA's
  // u 7·16·2 B.
  const double u = 28.0 * 7 * 16 * 2;
  EXPECT_DOUBLE_EQ(kept_per_token("A"), 28.0 * (7168 * 3 + 9216 + 112 + 75776) + u);
  EXPECT_DOUBLE_EQ(kept_per_token("B"), 28.0 * (7168 * 3 + 9216 + 112) + u);
  EXPECT_DOUBLE_EQ(kept_per_token("C"), 28.0 * (7168 * 2 + 112) + u);
  EXPECT_DOUBLE_EQ(kept_per_token("D"), 28.0 * 7168 + u);
  EXPECT_DOUBLE_EQ(kept_per_token("D2"), 14.0 * 7168 + u);
}

TEST_F(MemoryPlan, PairsFromTheFirstLayerOfARun) {
  const double u = 28.0 * 7 * 16 * 2;
  // One of D, then 27 of D2: 14 of them keep their input.
  EXPECT_DOUBLE_EQ(kept_per_token("1xD,27xD2"), 15.0 * 7168 + u);
}

TEST_F(MemoryPlan, CountsNothingBelowTheLowestTrainedLayer) {
  for (config::ParamSpec& spec : registry_) {
    spec.trainable = spec.trainable && spec.layer >= 20;
  }
  EXPECT_DOUBLE_EQ(kept_per_token("D"), 8.0 * 7168 + 28.0 * 7 * 16 * 2);
}

TEST_F(MemoryPlan, HalvesActivationsOnTwoRanks) {
  plan::MemoryRequest two = request(32768, "A");
  const std::int64_t one = plan::make_memory_plan(two).bytes.activations;
  two.mesh = {.dp = 1, .sp = 2};
  EXPECT_EQ(plan::make_memory_plan(two).bytes.activations * 2, one);
}

TEST_F(MemoryPlan, CountsWeightsAndStatesOfTheRegistry) {
  const plan::RankBytes bytes = plan::make_memory_plan(request(1024, "A")).bytes;
  // 7,615,616,512 base parameters; LoRA r16: 28·16·(2·(3584+18944)·… ) counted from the shapes.
  std::int64_t base = 0;
  std::int64_t lora = 0;
  for (const config::ParamSpec& spec : registry_) {
    (spec.trainable ? lora : base) += spec.num_elements();
  }
  EXPECT_EQ(base, 7'615'616'512);
  EXPECT_EQ(lora, 28 * 16 * (3584 + 3584 + 2 * (3584 + 512) + 3584 + 3584 + 3 * (3584 + 18944)));
  EXPECT_EQ(bytes.weights, (base + lora) * 2);
  EXPECT_EQ(bytes.masters, lora * 4);
  EXPECT_EQ(bytes.gradients, lora * 4);
  EXPECT_EQ(bytes.optimizer, lora * 8);
}

TEST_F(MemoryPlan, CountsTwoBytesForEachMomentInBf16) {
  plan::MemoryRequest small = request(1024, "A");
  const plan::RankBytes usual = plan::make_memory_plan(small).bytes;
  small.optimizer_dtype = base::Dtype::kBFloat16;
  const plan::RankBytes bytes = plan::make_memory_plan(small).bytes;
  EXPECT_EQ(bytes.optimizer * 2, usual.optimizer);
  EXPECT_EQ(bytes.masters, usual.masters);
  EXPECT_EQ(bytes.total(), usual.total() - usual.optimizer / 2);
}

TEST_F(MemoryPlan, CountsShardsAndTheTwoLayersThatAreGathered) {
  plan::MemoryRequest sharded = request(1024, "A");
  const plan::RankBytes whole = plan::make_memory_plan(sharded).bytes;
  sharded.mesh = {.dp = 2, .sp = 1};
  sharded.shard_ranks = 2;
  const plan::RankBytes two = plan::make_memory_plan(sharded).bytes;
  // q, k, v: 4608 x 3584, o: 3584 x 3584, gate, up: 37888 x 3584, down: 3584 x 18944.
  const std::int64_t layer = std::int64_t{3584} * (4608 + 3584 + 37888 + 18944) * 2;
  EXPECT_EQ(whole.weights - two.weights, 28 * layer / 2 - 2 * layer);
  EXPECT_EQ(two.total() - two.weights, whole.total() - whole.weights);
  sharded.shard_ranks = 5;  // 4608 = 922 + 922 + 922 + 921 + 921
  const std::int64_t part =
      std::int64_t{2} * (3584 * (922 + 717 + 7578) + std::int64_t{18944} * 717);
  EXPECT_EQ(whole.weights - plan::make_memory_plan(sharded).bytes.weights,
            28 * (layer - part) - 2 * layer);
}

TEST_F(MemoryPlan, AutoKeepsAllThatFitsAndTurnsLayersOneByOne) {
  plan::MemoryRequest automatic = request(32768, "auto");
  EXPECT_EQ(plan::policy_text(plan::make_memory_plan(automatic).policies), "28xA");
  automatic.limit_bytes = 80'000'000'000;
  const plan::MemoryPlan plan = plan::make_memory_plan(automatic);
  EXPECT_TRUE(plan.fits);
  EXPECT_LE(plan.bytes.total(), 80'000'000'000);
  EXPECT_NE(plan.policies.front(), plan.policies.back());
}

TEST_F(MemoryPlan, TakesTheFirstFormThatFits) {
  plan::MemoryRequest tight = request(65536, "D");
  tight.on_gpu = true;
  const std::vector<config::LayerPolicy> policies(28, {config::ActivationPreset::kD, false});
  std::int64_t before = 0;
  for (const plan::LayerForm& form :
       {plan::LayerForm{1, 0}, plan::LayerForm{4, 8192}, plan::LayerForm{4, 2048},
        plan::LayerForm{4, 2048, 0, true}}) {
    tight.limit_bytes = plan::rank_bytes(tight, policies, form).total();
    const plan::MemoryPlan plan = plan::make_memory_plan(tight);
    EXPECT_TRUE(plan.fits);
    EXPECT_EQ(plan.form, form);
    EXPECT_TRUE(before == 0 || plan.bytes.total() < before);
    before = plan.bytes.total();
  }
  tight.limit_bytes = 1;
  const plan::MemoryPlan most = plan::make_memory_plan(tight);
  EXPECT_FALSE(most.fits);
  EXPECT_EQ(plan::choice_text(most),
            "28xD, attention in 4 head groups, MLP in tiles of 2,048 rows, LoRA's x·A made again");
  tight.limit_bytes.reset();
  EXPECT_EQ(plan::choice_text(plan::make_memory_plan(tight)), "28xD");
}

TEST_F(MemoryPlan, HoldsOnlyTheUOfWhatIsKeptWhenTheOthersAreMadeAgain) {
  plan::MemoryRequest row = request(65536, "D");
  row.on_gpu = true;
  const auto activations = [&](config::ActivationPreset preset, bool reruns_u) {
    const std::vector<config::LayerPolicy> policies(28, {preset, false});
    return plan::rank_bytes(row, policies, {4, 2048, 0, reruns_u}).activations;
  };
  // Rank 16, seven modules, 28 layers, bf16.
  const std::int64_t all = std::int64_t{65536} * 16 * 7 * 28 * 2;
  EXPECT_EQ(activations(config::ActivationPreset::kD, false) -
                activations(config::ActivationPreset::kD, true),
            all);
  // B runs gate and up again; the u of down goes with them.
  EXPECT_EQ(activations(config::ActivationPreset::kB, false) -
                activations(config::ActivationPreset::kB, true),
            all / 7 * 3);
  EXPECT_EQ(activations(config::ActivationPreset::kA, false),
            activations(config::ActivationPreset::kA, true));
}

TEST_F(MemoryPlan, DeterministicAttentionNeedsSeveralGradientsOfQ) {
  plan::MemoryRequest row = request(65536, "D");
  row.on_gpu = true;
  row.form = plan::LayerForm{4, 2048};
  const std::int64_t before = plan::make_memory_plan(row).attention_kernel_bytes;
  row.attention = plan::AttentionKind::kDeterministicFlash;
  // 7 heads per call: 22 blocks each on 148 multiprocessors, fp32, of the row and its documents' padding.
  const std::int64_t rows = 65536 + 65536 / 8 + 128;
  EXPECT_EQ(plan::make_memory_plan(row).attention_kernel_bytes - before,
            7 * 128 * 4 * (22 * rows - 65536));
}

TEST_F(MemoryPlan, GrowsBySixtyTwoKilobytesPerTokenWithCheckpointsOnTheHost) {
  plan::MemoryRequest row = request(262144, "D+offload");
  row.on_gpu = true;
  const std::vector<config::LayerPolicy> policies(28, {config::ActivationPreset::kD, true});
  const std::int64_t shorter = plan::rank_bytes(row, policies, {4, 8192}).total();
  const std::int64_t host = plan::rank_bytes(row, policies, {4, 8192}).host;
  EXPECT_EQ(host, std::int64_t{28} * 7168 * 262144);
  row.row_tokens = 524288;
  row.row_targets = 524288;
  const std::int64_t longer = plan::rank_bytes(row, policies, {4, 8192}).total();
  EXPECT_LE(static_cast<double>(longer - shorter) / 262144, 62e3);
}

TEST_F(MemoryPlan, SaysWhenNothingFits) {
  plan::MemoryRequest automatic = request(32768, "auto");
  automatic.limit_bytes = 10'000'000'000;
  EXPECT_FALSE(plan::make_memory_plan(automatic).fits);
}

TEST_F(MemoryPlan, RefusesWhatIsNoPolicy) {
  EXPECT_THROW(plan::make_memory_plan(request(1024, "Z")), base::UserError);
  EXPECT_THROW(plan::make_memory_plan(request(1024, "3xA")), base::UserError);
}

TEST_F(MemoryPlan, WritesMixesAsTheOptionReadsThem) {
  const plan::MemoryPlan plan = plan::make_memory_plan(request(1024, "12xA,16xC+offload"));
  EXPECT_EQ(plan::policy_text(plan.policies), "12xA,16xC+offload");
}

}  // namespace
}  // namespace longhaul
