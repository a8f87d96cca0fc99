// The product of all axes: every model, tuning and layout under every activation policy, with head groups and MLP
// tiles, with sharded weights, and with heads written into the peers' memory. For ./run-tests --all.
#include <gtest/gtest.h>

#include "model/layout_runner.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using config::ActivationPreset;
using testing::Layout;
using testing::StepOptions;
using testing::StepResult;
using testing::Tuning;

using Case = std::tuple<std::string, Tuning, std::int64_t, std::int64_t>;  // model, tuning, sp, dp

class WideParity : public ::testing::TestWithParam<Case> {};

std::vector<StepOptions> all_options(Tuning tuning) {
  std::vector<StepOptions> result;
  for (const auto preset : {ActivationPreset::kA, ActivationPreset::kB, ActivationPreset::kC,
                            ActivationPreset::kD, ActivationPreset::kD2}) {
    for (const bool small : {false, true}) {
      for (const bool sharded : {false, true}) {
        for (const bool peers : {false, true}) {
          if (sharded && tuning == Tuning::kFull) {
            continue;  // only frozen weights are sharded
          }
          StepOptions options;
          options.policy.preset = preset;
          options.attention_groups = small ? 2 : 1;
          options.mlp_tile_rows = small ? 3 : 0;
          options.sharded = sharded;
          if (peers) {
            options.make_exchange = testing::in_two_parts;
          }
          result.push_back(options);
        }
      }
    }
  }
  return result;
}

TEST_P(WideParity, EveryWayEqualsOneRankOneDocumentAtATime) {
  const auto& [model, tuning, sp, dp] = GetParam();
  const testing::Rows rows = testing::composite_step(testing::tiny_model(model).vocab_size);
  const StepResult one =
      testing::run_step(model, tuning, {}, testing::one_document_at_a_time(rows));
  for (const StepOptions& options : all_options(tuning)) {
    const StepResult many =
        testing::run_step(model, tuning, {.sp = sp, .dp = dp}, testing::flatten(rows), options);
    const auto preset = static_cast<int>(options.policy.preset);
    EXPECT_EQ(many.targets, one.targets);
    EXPECT_NEAR(many.loss_sum, one.loss_sum, 1e-6 * one.loss_sum);
    EXPECT_EQ(testing::compare_gradients(many.gradients, one.gradients, 1e-5), "")
        << "preset " << preset << ", tiles " << options.mlp_tile_rows << ", sharded "
        << options.sharded << ", peers " << (options.make_exchange != nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllAxes, WideParity,
    ::testing::Combine(::testing::Values("llama", "qwen2", "qwen2_tied", "qwen3", "smol"),
                       ::testing::Values(Tuning::kLora, Tuning::kFull),
                       ::testing::Values(1, 2, 3, 4), ::testing::Values(1, 2, 3)),
    [](const ::testing::TestParamInfo<Case>& test) {
      return std::get<0>(test.param) +
             (std::get<1>(test.param) == Tuning::kLora ? "_lora" : "_full") + "_sp" +
             std::to_string(std::get<2>(test.param)) + "_dp" +
             std::to_string(std::get<3>(test.param));
    });

}  // namespace
}  // namespace longhaul
