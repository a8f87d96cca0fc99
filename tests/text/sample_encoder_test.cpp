#include "text/sample_encoder.h"

#include "text/expect_refused.h"
#include "text/tiny_tokenizer.h"

namespace longhaul::text {
namespace {

using config::LossScale;
using config::TruncationStrategy;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

Conversation one_round() {
  return {std::nullopt, {{Role::kUser, "hello", {}}, {Role::kAssistant, "hello", {}}}};
}

/// Ids where the labels say so, kNoLabel elsewhere.
Ids without_first(Ids labels) {
  labels.front() = kNoLabel;
  return labels;
}

TEST(SampleEncoder, LabelsAnswerAndSuffix) {
  const SampleEncoder encoder(tiny_tokenizer(), &find_template("chatml"), {});
  const TokenizedSample sample = encoder.encode(one_round());
  const Ids prompt = joined_ids({{kImStart},
                                 byte_ids("user\n"),
                                 {kHello, kImEnd},
                                 byte_ids("\n"),
                                 {kImStart},
                                 byte_ids("assistant\n")});
  const Ids answer = {kHello, kImEnd, '\n'};
  EXPECT_EQ(sample.ids, joined_ids({prompt, answer}));
  EXPECT_EQ(sample.labels, joined_ids({Ids(prompt.size(), kNoLabel), answer}));
}

TEST(SampleEncoder, PiecesOfDifferentLossAreTokenizedApart) {
  // "h" ends the query side of a template whose answer starts with "e": no merge across the border.
  const ChatTemplate joined(TemplateRow{.name = "x", .assistant_open = "h"});
  const SampleEncoder encoder(tiny_tokenizer(), &joined, {});
  EXPECT_EQ(encoder.encode({std::nullopt, {{Role::kAssistant, "e", {}}}}).ids, (Ids{'h', 'e'}));
  const SampleEncoder all(tiny_tokenizer(), &joined, {.loss_scale = LossScale::kAll});
  EXPECT_EQ(all.encode({std::nullopt, {{Role::kAssistant, "e", {}}}}).ids, (Ids{kHe}));
}

TEST(SampleEncoder, FirstTokenIsNeverATarget) {
  const SampleEncoder all(tiny_tokenizer(), &find_template("chatml"),
                          {.loss_scale = LossScale::kAll});
  const TokenizedSample sample = all.encode(one_round());
  EXPECT_EQ(sample.labels, without_first(sample.ids));
}

TEST(SampleEncoder, OptionSystemFillsInForRowsWithoutOne) {
  const SampleEncoder encoder(tiny_tokenizer(), &find_template("qwen"), {.system = "hello"});
  Conversation chat = one_round();
  const Ids head = {kImStart, 's', 'y', 's', 't', 'e', 'm', '\n', kHello, kImEnd};
  const Ids ids = encoder.encode(chat).ids;
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + 10), head);
  chat.system = "lll";
  EXPECT_EQ(encoder.encode(chat).ids[8], kLl);
}

TEST(SampleEncoder, PlainTextEndsWithEosAndIsAllTarget) {
  const SampleEncoder encoder(tiny_tokenizer(), nullptr,
                              {.loss_scale = LossScale::kAll, .eos_id = kImEnd});
  EXPECT_EQ(encoder.encode_plain("hello hello").ids, (Ids{kHello, kSpaceHello, kImEnd}));
  EXPECT_EQ(encoder.encode_plain("hello hello").labels, (Ids{kNoLabel, kSpaceHello, kImEnd}));
  EXPECT_EQ(encoder.encode_plain("").ids, (Ids{kImEnd}));
  EXPECT_EQ(encoder.encode_plain("").labels, (Ids{kNoLabel}));
}

TEST(SampleEncoder, WithoutATemplateTextsFollowEachOther) {
  const SampleEncoder encoder(tiny_tokenizer(), nullptr, {.eos_id = kImEnd});
  const TokenizedSample sample = encoder.encode(one_round());
  EXPECT_EQ(sample.ids, (Ids{kHello, kHello, kImEnd}));
  EXPECT_EQ(sample.labels, (Ids{kNoLabel, kHello, kImEnd}));
  EXPECT_THAT(refusal([] { SampleEncoder(tiny_tokenizer(), nullptr, {}); }),
              HasSubstr("end-of-text"));
}

TEST(SampleEncoder, RowsFollowTheLengthPolicy) {
  const auto rows = [](TruncationStrategy strategy) {
    return SampleEncoder(tiny_tokenizer(), nullptr,
                         {.eos_id = kImEnd, .max_length = 2, .truncation = strategy})
        .encode_plain_rows("hello hello");
  };
  EXPECT_TRUE(rows(TruncationStrategy::kDelete).empty());
  EXPECT_EQ(rows(TruncationStrategy::kLeft).front().ids, (Ids{kSpaceHello, kImEnd}));
  EXPECT_EQ(rows(TruncationStrategy::kSplit).size(), 2U);
}

TEST(SampleEncoder, IdentityFollowsEverythingThatChangesTheResult) {
  const auto identity = [](const char* name, const EncodeOptions& options) {
    return SampleEncoder(tiny_tokenizer(), &find_template(name), options).identity();
  };
  const std::vector<std::string> all = {
      identity("chatml", {}),
      identity("qwen", {}),
      identity("chatml", {.loss_scale = LossScale::kAll}),
      identity("chatml", {.system = "s"}),
      identity("chatml", {.system = ""}),
      identity("chatml", {.max_length = 5}),
      identity("chatml", {.max_length = 5, .truncation = TruncationStrategy::kLeft})};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(all[i], all[j]) << i << " " << j;
    }
  }
  EXPECT_EQ(identity("chatml", {}), all[0]);
}

}  // namespace
}  // namespace longhaul::text
