#include "infer/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/scratch.h"
#include "infer/loaded_model.h"
#include "infer/tiny_folder.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using infer::StopReason;

/// A tiny model with a tokenizer, and greedy answers to one prompt.
class Generator : public ::testing::Test {
 protected:
  Generator()
      : config_(testing::tiny_model("smol")),
        lora_(testing::tiny_lora(config_)),
        tokenizer_(text::Tokenizer::parse(testing::tiny_tokenizer_json(), "tokenizer.json")) {
    const model::Parameters parameters = testing::tiny_parameters(config_, lora_);
    testing::write_model_folder(scratch_ / "model", config_, parameters, base::Dtype::kFloat32);
    model_ = std::make_unique<infer::LoadedModel>(scratch_ / "model", config_, std::nullopt,
                                                  base::Dtype::kFloat32);
    decoder_ = std::make_unique<infer::CachedDecoder>(model_->config(), model_->store());
  }

  infer::Answer answer(const infer::StopRules& stop = {},
                       infer::GenerationLimits limits = {12, 256},
                       const infer::SamplingOptions& sampling = {},
                       const infer::GenerationHooks& hooks = {}, std::int64_t row = 0) {
    return infer::generate(*decoder_, tokenizer_, prompt_, stop, sampling, limits, row, hooks);
  }

  test::ScratchFolder scratch_;
  config::ModelConfig config_;
  config::LoraSpec lora_;
  text::Tokenizer tokenizer_;
  std::unique_ptr<infer::LoadedModel> model_;
  std::unique_ptr<infer::CachedDecoder> decoder_;
  std::vector<std::int32_t> prompt_ = testing::make_document(9, 0, 40, 6).ids;
};

TEST_F(Generator, TakesTheLikeliestTokenOfTheFullRowAgainAndAgain) {
  const infer::Answer got = answer();
  ASSERT_EQ(got.ids.size(), 12U);
  EXPECT_EQ(got.reason, StopReason::kNewTokens);
  EXPECT_EQ(got.prompt_tokens, 9);
  std::vector<std::int32_t> row = prompt_;
  for (const std::int32_t id : got.ids) {
    infer::CachedDecoder fresh(model_->config(), model_->store());
    EXPECT_EQ(id, fresh.append(row).argmax().item<std::int64_t>());
    row.push_back(id);
  }
  EXPECT_EQ(got.text, tokenizer_.decode(got.ids, /*skip_special=*/true));
}

TEST_F(Generator, EndsBeforeAStopToken) {
  const infer::Answer free = answer();
  const infer::Answer got = answer({.ids = {free.ids[4]}, .texts = {}});
  const auto first = std::find(free.ids.begin(), free.ids.end(), free.ids[4]);
  EXPECT_EQ(got.ids, std::vector<std::int32_t>(free.ids.begin(), first));
  EXPECT_EQ(got.reason, StopReason::kStopWord);
}

TEST_F(Generator, EndsBeforeAStopTextOfSeveralTokens) {
  const infer::Answer free = answer();
  const std::string stop = free.text.substr(3, 2);
  const infer::Answer got = answer({.ids = {}, .texts = {stop}});
  EXPECT_EQ(got.text, free.text.substr(0, free.text.find(stop)));
  EXPECT_EQ(got.reason, StopReason::kStopWord);
}

TEST_F(Generator, EndsWhereTheModelsPositionsEnd) {
  const infer::Answer got = answer({}, {.max_new_tokens = 100, .max_tokens = 15});
  EXPECT_EQ(got.ids.size(), 6U);
  EXPECT_EQ(got.reason, StopReason::kModelLength);
}

TEST_F(Generator, StreamsTheWholeTextInPieces) {
  std::string streamed;
  int pieces = 0;
  const infer::Answer got = answer({}, {12, 256}, {},
                                   {.on_text =
                                        [&](std::string_view text) {
                                          streamed += text;
                                          ++pieces;
                                        },
                                    .interrupted = [] { return false; }});
  EXPECT_EQ(streamed, got.text);
  EXPECT_GT(pieces, 5);
}

TEST_F(Generator, StopsWhenInterrupted) {
  int asked = 0;
  const infer::Answer got =
      answer({}, {12, 256}, {},
             {.on_text = [](std::string_view) {}, .interrupted = [&] { return ++asked == 3; }});
  EXPECT_EQ(got.ids.size(), 3U);
  EXPECT_EQ(got.reason, StopReason::kInterrupted);
}

TEST_F(Generator, SamplesTheSameAnswerForTheSameSeedAndRow) {
  const infer::SamplingOptions sampling{.temperature = 2, .top_p = 0.95, .seed = 5};
  const infer::Answer first = answer({}, {12, 256}, sampling);
  EXPECT_EQ(answer({}, {12, 256}, sampling).ids, first.ids);
  EXPECT_NE(answer({}, {12, 256}, sampling, {}, 1).ids, first.ids);
  EXPECT_NE(answer({}, {12, 256}, {.temperature = 2, .top_p = 0.95, .seed = 6}).ids, first.ids);
}

}  // namespace
}  // namespace longhaul
