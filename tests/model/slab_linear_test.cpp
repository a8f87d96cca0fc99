// Slabs against separate passes, which are tested against autograd: whole models, any layout.
#include "model/slab_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "model/layout_runner.h"

namespace longhaul {
namespace {

using testing::Tuning;

std::vector<data::PackedBatch> rows(const std::string& name) {
  return testing::flatten(testing::composite_step(testing::tiny_model(name).vocab_size));
}

class SlabLinear : public ::testing::TestWithParam<std::string> {
 protected:
  static void expect_same_bits(testing::StepOptions options);
};

/// Every preset, with and without u made again, against keeping all.
void SlabLinear::expect_same_bits(testing::StepOptions options) {
  const testing::StepResult keep =
      testing::run_step(GetParam(), Tuning::kLora, {}, rows(GetParam()), options);
  for (const auto preset : {config::ActivationPreset::kB, config::ActivationPreset::kC,
                            config::ActivationPreset::kD, config::ActivationPreset::kD2}) {
    for (const bool reruns_u : {false, true}) {
      options.policy.preset = preset;
      options.reruns_u = reruns_u;
      const testing::StepResult other =
          testing::run_step(GetParam(), Tuning::kLora, {}, rows(GetParam()), options);
      EXPECT_EQ(other.loss_sum, keep.loss_sum);
      for (const auto& [param, gradient] : keep.gradients) {
        EXPECT_TRUE(gradient.equal(other.gradients.at(param)))
            << param << " under preset " << static_cast<int>(preset)
            << ", u made again: " << reruns_u;
      }
    }
  }
}

TEST_P(SlabLinear, EqualsSeparatePassesOnAnyNumberOfRanks) {
  for (const double dropout : {0.0, 0.3}) {
    testing::StepOptions options;
    options.lora_dropout = dropout;
    const testing::StepResult want =
        testing::run_step(GetParam(), Tuning::kLora, {}, rows(GetParam()), options);
    options.slabs = true;
    for (const std::int64_t sp : {1, 2, 3}) {
      const testing::StepResult got =
          testing::run_step(GetParam(), Tuning::kLora, {.sp = sp}, rows(GetParam()), options);
      EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum) << sp;
      EXPECT_EQ(testing::compare_gradients(got.gradients, want.gradients, 1e-5), "") << sp;
    }
  }
}

TEST_P(SlabLinear, GivesTheSameBitsUnderEveryActivationPolicy) {
  testing::StepOptions options;
  options.slabs = true;
  for (const double dropout : {0.0, 0.3}) {
    options.lora_dropout = dropout;
    expect_same_bits(options);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SlabLinear,
                         ::testing::Values("llama", "qwen2", "qwen2_tied", "qwen3", "smol"),
                         [](const auto& test) { return test.param; });

TEST(Slab, HoldsWeightsAdaptersAndTheScale) {
  const config::ModelConfig model = testing::tiny_model("qwen2");
  const config::TuningSpec spec = testing::tiny_tuning(model, Tuning::kLora);
  model::Parameters parameters(config::build_registry(model, spec), at::kBFloat16, at::kCPU, 2.0);
  const std::string module = "model.layers.1.self_attn.k_proj.";
  const std::int64_t q = parameters.find("model.layers.1.self_attn.q_proj.weight");
  const std::int64_t b = parameters.find(module + "lora_B.weight");
  const model::Slab* slab = parameters.slab(q);
  ASSERT_NE(slab, nullptr);
  EXPECT_EQ(parameters.slab(parameters.find(module + "weight")), nullptr);
  EXPECT_EQ(slab->room, 16);  // three adapters of rank 4, rounded up
  EXPECT_EQ(slab->matrix.size(0), slab->outputs + 16);
  const at::Tensor values = at::randn(parameters.master(b).sizes());
  parameters.assign(b, values);
  EXPECT_TRUE(parameters.master(b).equal(values));
  EXPECT_TRUE(parameters.compute(b).equal(values.to(at::kBFloat16) * 2));
  parameters.master(b).fill_(0.5);
  parameters.refresh_compute();
  EXPECT_TRUE(parameters.compute(b).equal(at::ones(values.sizes(), at::kBFloat16)));
  const std::int64_t q_rows = parameters.compute(q).size(0);
  const at::Tensor right = slab->matrix.narrow(1, slab->inputs, 16);
  EXPECT_TRUE(right.narrow(0, q_rows, values.size(0)).narrow(1, 4, 4).equal(parameters.compute(b)));
  // Rows of q have nothing in the columns of k and v.
  EXPECT_TRUE(right.narrow(0, 0, q_rows).narrow(1, 4, 12).count_nonzero().item<std::int64_t>() ==
              0);
}

}  // namespace
}  // namespace longhaul
