// The decoder's explicit forward and backward against libtorch's autograd on the plain formula in
// fp64.
#include "model/decoder_model.h"

#include <gtest/gtest.h>

#include "model/layout_runner.h"
#include "model/reference_model.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using testing::Document;
using testing::Tuning;

struct Case {
  std::string model;
  Tuning tuning;
};

std::string case_name(const ::testing::TestParamInfo<Case>& test) {
  return test.param.model + (test.param.tuning == Tuning::kLora ? "_lora" : "_full");
}

std::vector<Document> sample_documents(std::int64_t vocab) {
  return {testing::make_document(13, 4, vocab, 1), testing::make_document(1, 0, vocab, 2),
          testing::make_document(6, 1, vocab, 3), testing::make_document(9, 9, vocab, 4)};
}

class DecoderModel : public ::testing::TestWithParam<Case> {};

TEST_P(DecoderModel, EqualsAutogradOfThePlainFormula) {
  const auto& [name, tuning] = GetParam();
  const config::ModelConfig model = testing::tiny_model(name);
  const std::vector<Document> documents = sample_documents(model.vocab_size);
  const config::TuningSpec spec = testing::tiny_tuning(model, tuning);
  model::Parameters weights(config::build_registry(model, spec), at::kFloat);
  testing::randomise(weights, 7);

  const data::PackedBatch row = testing::make_row(documents, 0);
  const double scale = 1.0 / static_cast<double>(row.num_targets());
  const testing::ReferenceResult want = testing::reference_step(
      model, weights, spec.lora ? spec.lora->scale() : 1.0, documents, scale);
  const testing::StepResult got = testing::run_step(name, tuning, {}, {row});

  EXPECT_EQ(got.targets, want.targets);
  EXPECT_EQ(got.correct, want.correct);
  EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum);
  EXPECT_EQ(testing::compare_gradients(got.gradients, want.gradients, 1e-5), "");
}

TEST_P(DecoderModel, GivesTheSameBitsUnderEveryActivationPolicy) {
  const auto& [name, tuning] = GetParam();
  const config::ModelConfig model = testing::tiny_model(name);
  const data::PackedBatch row = testing::make_row(sample_documents(model.vocab_size), 0);
  testing::StepOptions options;
  options.lora_dropout = tuning == Tuning::kLora ? 0.3 : 0.0;
  const testing::StepResult keep = testing::run_step(name, tuning, {.sp = 2}, {row}, options);
  for (const auto preset : {config::ActivationPreset::kB, config::ActivationPreset::kC,
                            config::ActivationPreset::kD, config::ActivationPreset::kD2}) {
    for (const bool reruns_u : {false, true}) {
      options.policy.preset = preset;
      options.reruns_u = reruns_u;
      const testing::StepResult other = testing::run_step(name, tuning, {.sp = 2}, {row}, options);
      EXPECT_EQ(other.loss_sum, keep.loss_sum);
      for (const auto& [param, gradient] : keep.gradients) {
        EXPECT_TRUE(gradient.equal(other.gradients.at(param)))
            << param << " under preset " << static_cast<int>(preset)
            << ", u made again: " << reruns_u;
      }
    }
  }
}

TEST_P(DecoderModel, GivesTheSameInAnyNumberOfHeadGroups) {
  const auto& [name, tuning] = GetParam();
  const config::ModelConfig model = testing::tiny_model(name);
  const data::PackedBatch row = testing::make_row(sample_documents(model.vocab_size), 0);
  testing::StepOptions options;
  for (const std::int64_t sp : {1, 2}) {
    options.attention_groups = 1;
    const testing::StepResult want = testing::run_step(name, tuning, {.sp = sp}, {row}, options);
    for (const std::int64_t groups : {2, 64}) {  // 64: as many as a rank has KV heads
      options.attention_groups = groups;
      const testing::StepResult got = testing::run_step(name, tuning, {.sp = sp}, {row}, options);
      // Not bit by bit: the tiny heads lie otherwise aligned (tests/ops/attention_test.cpp).
      EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum);
      EXPECT_EQ(testing::compare_gradients(got.gradients, want.gradients, 2e-6), "") << groups;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, DecoderModel,
    ::testing::Values(Case{"llama", Tuning::kLora}, Case{"llama", Tuning::kFull},
                      Case{"qwen2", Tuning::kLora}, Case{"qwen2", Tuning::kFull},
                      Case{"qwen2_tied", Tuning::kLora}, Case{"qwen2_tied", Tuning::kFull},
                      Case{"qwen3", Tuning::kLora}, Case{"qwen3", Tuning::kFull},
                      Case{"smol", Tuning::kLora}, Case{"smol", Tuning::kFull}),
    case_name);

}  // namespace
}  // namespace longhaul
