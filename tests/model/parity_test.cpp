// Every layout computes the loss and the gradients of one rank that sees one document at a time.
#include <gtest/gtest.h>

#include "model/layout_runner.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using testing::Document;
using testing::Layout;
using testing::StepResult;
using testing::Tuning;

using testing::composite_step;
using testing::flatten;
using testing::one_document_at_a_time;
using testing::Rows;

void expect_parity(const std::string& model, Tuning tuning, Layout layout, const Rows& rows) {
  const StepResult one = testing::run_step(model, tuning, {}, one_document_at_a_time(rows));
  const StepResult many = testing::run_step(model, tuning, layout, flatten(rows));
  EXPECT_EQ(many.targets, one.targets);
  EXPECT_EQ(many.correct, one.correct);
  EXPECT_NEAR(many.loss_sum, one.loss_sum, 1e-6 * one.loss_sum);
  EXPECT_EQ(testing::compare_gradients(many.gradients, one.gradients, 1e-5), "");
}

struct Case {
  std::string model;
  Tuning tuning = Tuning::kLora;
  Layout layout;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::string model : {"llama", "qwen2", "qwen2_tied", "qwen3", "smol"}) {
    for (const Tuning tuning : {Tuning::kLora, Tuning::kFull}) {
      for (const std::int64_t sp : {1, 2, 3, 4}) {
        for (const std::int64_t dp : {1, 2}) {
          cases.push_back({model, tuning, {.sp = sp, .dp = dp}});
        }
      }
    }
  }
  return cases;
}

class Parity : public ::testing::TestWithParam<Case> {};

TEST_P(Parity, CompositeStepEqualsOneRankOneDocumentAtATime) {
  const auto& [model, tuning, layout] = GetParam();
  expect_parity(model, tuning, layout, composite_step(testing::tiny_model(model).vocab_size));
}

std::string layout_name(Layout layout) {
  return "sp" + std::to_string(layout.sp) + "_dp" + std::to_string(layout.dp);
}

std::string case_name(const ::testing::TestParamInfo<Case>& test) {
  const std::string tuning = test.param.tuning == Tuning::kLora ? "_lora_" : "_full_";
  return test.param.model + tuning + layout_name(test.param.layout);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Parity, ::testing::ValuesIn(all_cases()), case_name);

class SmolShapes : public ::testing::TestWithParam<Layout> {};

TEST_P(SmolShapes, EachShapeAloneEqualsOneRank) {
  using testing::make_document;
  const std::int64_t vocab = testing::tiny_model("smol").vocab_size;
  const Rows shapes = composite_step(vocab);
  const std::vector<Rows> alone = {
      {shapes[0]},
      {shapes[1]},
      {shapes[2]},
      {{make_document(1, 0, vocab, 21)}},   // one token, no target
      {{make_document(2, 1, vocab, 22)}},   // shorter than sp
      {{make_document(31, 1, vocab, 23)}},  // document = row
      {{make_document(12, 2, vocab, 24),
        make_document(12, 2, vocab, 25)}},  // border on a shard border
  };
  for (const Rows& rows : alone) {
    expect_parity("smol", Tuning::kLora, GetParam(), rows);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, SmolShapes,
                         ::testing::Values(Layout{2, 1}, Layout{2, 2}, Layout{3, 1}, Layout{3, 2},
                                           Layout{4, 1}, Layout{4, 2}),
                         [](const ::testing::TestParamInfo<Layout>& test) {
                           return layout_name(test.param);
                         });

TEST(Parity, DropoutAndNoiseDrawTheSameMasksInEveryLayout) {
  const Rows rows = composite_step(50);
  testing::StepOptions options;
  options.lora_dropout = 0.25;
  options.neftune_alpha = 5;
  const StepResult one = testing::run_step("smol", Tuning::kLora, {}, flatten(rows), options);
  const StepResult plain = testing::run_step("smol", Tuning::kLora, {}, flatten(rows));
  EXPECT_GT(std::abs(one.loss_sum - plain.loss_sum), 1e-3);
  for (const Layout layout : {Layout{2, 1}, Layout{3, 2}, Layout{4, 1}}) {
    const StepResult many =
        testing::run_step("smol", Tuning::kLora, layout, flatten(rows), options);
    EXPECT_NEAR(many.loss_sum, one.loss_sum, 1e-6 * one.loss_sum);
    EXPECT_EQ(testing::compare_gradients(many.gradients, one.gradients, 1e-5), "");
  }
}

}  // namespace
}  // namespace longhaul
