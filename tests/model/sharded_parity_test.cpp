// A step with sharded weights gives the bits of the same layout with whole ones, in every layout,
// under every activation policy, and however late the gathers end.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "config/activation_policy.h"
#include "model/late_side_stream.h"
#include "model/layout_runner.h"

namespace longhaul {
namespace {

using testing::Layout;
using testing::StepOptions;
using testing::StepResult;
using testing::Tuning;

std::vector<data::PackedBatch> composite_rows(const std::string& model) {
  return testing::flatten(testing::composite_step(testing::tiny_model(model).vocab_size));
}

bool is_same(const StepResult& got, const StepResult& want) {
  return got.loss_sum == want.loss_sum && got.targets == want.targets &&
         got.gradients.size() == want.gradients.size() &&
         std::all_of(want.gradients.begin(), want.gradients.end(), [&](const auto& gradient) {
           return gradient.second.equal(got.gradients.at(gradient.first));
         });
}

StepResult step(const std::string& model, Layout layout, const StepOptions& options) {
  return testing::run_step(model, Tuning::kLora, layout, composite_rows(model), options);
}

struct Case {
  std::string model;
  Layout layout;
};

void PrintTo(const Case& test, std::ostream* out) {
  *out << test.model << " sp " << test.layout.sp << " dp " << test.layout.dp;
}

class ShardedParity : public ::testing::TestWithParam<Case> {};

TEST_P(ShardedParity, GivesTheBitsOfWholeWeights) {
  const auto& [model, layout] = GetParam();
  for (const bool slabs : {false, true}) {
    StepOptions options;
    options.num_layers = 4;  // two would stay in the buffers for good
    options.slabs = slabs;
    options.lora_dropout = slabs ? 0.3 : 0.0;
    const StepResult want = step(model, layout, options);
    options.sharded = true;
    EXPECT_TRUE(is_same(step(model, layout, options), want)) << "slabs " << slabs;
    options.make_side_stream = [] { return std::make_unique<testing::LateSideStream>(); };
    EXPECT_TRUE(is_same(step(model, layout, options), want)) << "late, slabs " << slabs;
  }
}

/// The step's three rows do not divide by two data-parallel groups: one sits out.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::string model : {"llama", "qwen2", "qwen2_tied", "qwen3", "smol"}) {
    for (const std::int64_t sp : {1, 2, 3}) {
      for (const std::int64_t dp : {1, 2}) {
        cases.push_back({model, {.sp = sp, .dp = dp}});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layouts, ShardedParity, ::testing::ValuesIn(all_cases()),
                         [](const ::testing::TestParamInfo<Case>& test) {
                           return test.param.model + "_sp" + std::to_string(test.param.layout.sp) +
                                  "_dp" + std::to_string(test.param.layout.dp);
                         });

class ShardedPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(ShardedPolicies, GiveTheBitsOfWholeWeights) {
  for (const std::int64_t layers : {1, 5, 6}) {
    if (GetParam().starts_with("1x") && layers != 6) {
      continue;
    }
    for (const Layout layout : {Layout{2, 1}, Layout{2, 2}}) {
      StepOptions options;
      options.num_layers = layers;
      options.slabs = true;
      options.layer_policies = config::activation_policy_of_layers(GetParam(), layers);
      const StepResult want = step("smol", layout, options);
      options.sharded = true;
      EXPECT_TRUE(is_same(step("smol", layout, options), want)) << layers << " layers";
      options.make_side_stream = [] { return std::make_unique<testing::LateSideStream>(); };
      EXPECT_TRUE(is_same(step("smol", layout, options), want)) << layers << " layers, late";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, ShardedPolicies,
                         ::testing::Values("A", "B", "C", "D", "D2", "1xD,5xD2", "1xA,5xD2"),
                         [](const ::testing::TestParamInfo<std::string>& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), ',', '_');
                           return name;
                         });

TEST(ShardedParity, HoldsWhenOnlySomeLayersHaveAdapters) {
  config::ModelConfig model = testing::tiny_model("qwen2");
  model.num_layers = 4;
  config::TuningSpec spec;
  spec.lora = config::LoraSpec{
      .rank = 4,
      .alpha = 8,
      .dropout = 0,
      // Slabs of one and of two adapters have equal room; layer 0 has no backward pass.
      .target_modules = {"model.layers.1.self_attn.q_proj", "model.layers.3.self_attn.q_proj",
                         "model.layers.3.self_attn.v_proj", "model.layers.2.mlp.down_proj"}};
  for (const bool slabs : {false, true}) {
    StepOptions options;
    options.num_layers = 4;
    options.slabs = slabs;
    options.spec = spec;
    options.policy.preset = config::ActivationPreset::kD2;
    const StepResult want = step("qwen2", {.sp = 2}, options);
    options.sharded = true;
    EXPECT_TRUE(is_same(step("qwen2", {.sp = 2}, options), want)) << "slabs " << slabs;
  }
}

TEST(ShardedParity, HoldsWhenTheHeadAndTheEmbeddingTrainToo) {
  StepOptions options;
  options.num_layers = 3;
  options.spec = testing::tiny_tuning(testing::tiny_model("llama"), Tuning::kLora);
  options.spec->lora->modules_to_save = {"lm_head", "embed_tokens"};
  const StepResult want = step("llama", {.sp = 2}, options);
  options.sharded = true;
  EXPECT_TRUE(is_same(step("llama", {.sp = 2}, options), want));
}

TEST(ShardedParity, IsLostWhenOneGatherIsLeftOut) {
  std::vector<data::PackedBatch> rows = composite_rows("smol");
  rows.pop_back();  // has no target
  ASSERT_EQ(rows.size(), 2U);
  StepOptions options;
  options.num_layers = 4;
  const auto run = [&] {
    return testing::run_step("smol", Tuning::kLora, {.sp = 2}, rows, options);
  };
  const StepResult want = run();
  options.sharded = true;
  constexpr std::int64_t kGathers = (4 + 2) + (2 + 2);
  for (std::int64_t skipped = 0; skipped <= kGathers; ++skipped) {
    options.make_side_stream = [&] {
      return std::make_unique<testing::SkippingSideStream>(skipped);
    };
    EXPECT_EQ(is_same(run(), want), skipped == kGathers) << "gather " << skipped;
  }
}

TEST(ShardedParity, IsLostWhenNobodyWaitsForAGather) {
  StepOptions options;
  options.num_layers = 4;
  const StepResult want = step("smol", {.sp = 2}, options);
  options.sharded = true;
  options.make_side_stream = [] { return std::make_unique<testing::ForgetfulSideStream>(); };
  EXPECT_FALSE(is_same(step("smol", {.sp = 2}, options), want));
}

}  // namespace
}  // namespace longhaul
