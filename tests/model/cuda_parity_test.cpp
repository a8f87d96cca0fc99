// Whole models on a GPU against the CPU, which is tested against autograd.
#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "dist/nccl_library.h"
#include "model/layout_runner.h"
#include "ops/cuda_library.h"

namespace longhaul {
namespace {

using testing::Tuning;
using Case = std::pair<std::string, Tuning>;

class CudaParity : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { ops::load_cuda_backend(0); }
  void SetUp() override { set_deterministic(true); }
  static void set_deterministic(bool on) {
    at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
  }
  static std::vector<data::PackedBatch> rows(const std::string& name) {
    return testing::flatten(testing::composite_step(testing::tiny_model(name).vocab_size));
  }
};

TEST_P(CudaParity, LossAndGradientsEqualTheCpusInFloat32) {
  const auto& [name, tuning] = GetParam();
  testing::StepOptions options;
  options.lora_dropout = tuning == Tuning::kLora ? 0.3 : 0.0;
  options.neftune_alpha = 5;
  const testing::StepResult want = testing::run_step(name, tuning, {}, rows(name), options);
  options.device = at::kCUDA;
  const testing::StepResult got = testing::run_step(name, tuning, {}, rows(name), options);
  EXPECT_EQ(got.targets, want.targets);
  EXPECT_EQ(got.correct, want.correct);
  EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum);
  EXPECT_EQ(testing::compare_gradients(got.gradients, want.gradients, 1e-5), "");
}

TEST_P(CudaParity, StaysNearTheCpuInBfloat16) {
  const auto& [name, tuning] = GetParam();
  for (const double dropout : {0.0, tuning == Tuning::kLora ? 0.3 : 0.0}) {
    testing::StepOptions options;
    options.lora_dropout = dropout;
    const testing::StepResult want = testing::run_step(name, tuning, {}, rows(name), options);
    options.device = at::kCUDA;
    options.dtype = at::kBFloat16;
    options.slabs = true;
    for (const bool deterministic : {true, false}) {  // FlashAttention-2, cuDNN
      set_deterministic(deterministic);
      const testing::StepResult got = testing::run_step(name, tuning, {}, rows(name), options);
      EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-2 * want.loss_sum);
      EXPECT_EQ(testing::compare_gradients(got.gradients, want.gradients, 0.1), "");
    }
  }
}

TEST_P(CudaParity, GivesTheSameBitsUnderEveryActivationPolicy) {
  const auto& [name, tuning] = GetParam();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    testing::StepOptions options;
    options.device = at::kCUDA;
    options.dtype = type;
    options.slabs = type == at::kBFloat16;
    options.lora_dropout = tuning == Tuning::kLora ? 0.3 : 0.0;
    const testing::StepResult keep = testing::run_step(name, tuning, {}, rows(name), options);
    for (const auto preset : {config::ActivationPreset::kB, config::ActivationPreset::kC,
                              config::ActivationPreset::kD, config::ActivationPreset::kD2}) {
      options.policy.preset = preset;
      const testing::StepResult other = testing::run_step(name, tuning, {}, rows(name), options);
      EXPECT_EQ(other.loss_sum, keep.loss_sum);
      for (const auto& [param, gradient] : keep.gradients) {
        EXPECT_TRUE(gradient.equal(other.gradients.at(param)))
            << param << " under preset " << static_cast<int>(preset);
      }
    }
  }
}

/// One rank of NCCL gathers its own rows: the side stream's order is all that can go wrong.
TEST_P(CudaParity, GivesTheSameBitsWithWeightsThatAreGatheredBesideCompute) {
  const auto& [name, tuning] = GetParam();
  if (tuning == Tuning::kFull) {
    return;  // nothing is frozen
  }
  const auto world = dist::open_nccl_world(
      0, 1, [](const std::string& id) { return id; }, std::chrono::minutes(1), nullptr);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    testing::StepOptions options;
    options.device = at::kCUDA;
    options.dtype = type;
    options.slabs = type == at::kBFloat16;
    options.num_layers = 6;
    const auto run = [&] {
      return testing::run_rank(*world, name, tuning, {}, rows(name), options);
    };
    const testing::StepResult whole = run();
    options.sharded = true;
    for (const auto preset : {config::ActivationPreset::kA, config::ActivationPreset::kD2}) {
      options.policy.preset = preset;
      const testing::StepResult sharded = run();
      EXPECT_EQ(sharded.loss_sum, whole.loss_sum);
      for (const auto& [param, gradient] : whole.gradients) {
        EXPECT_TRUE(gradient.equal(sharded.gradients.at(param))) << param;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, CudaParity,
    ::testing::Values(Case{"llama", Tuning::kLora}, Case{"llama", Tuning::kFull},
                      Case{"qwen2", Tuning::kLora}, Case{"qwen2", Tuning::kFull},
                      Case{"qwen2_tied", Tuning::kFull}, Case{"qwen3", Tuning::kLora},
                      Case{"qwen3", Tuning::kFull}, Case{"smol", Tuning::kLora},
                      Case{"aligned", Tuning::kLora}),
    [](const ::testing::TestParamInfo<Case>& test) {
      return test.param.first + (test.param.second == Tuning::kFull ? "_full" : "_lora");
    });

}  // namespace
}  // namespace longhaul
