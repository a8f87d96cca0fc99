#include "infer/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/scratch.h"
#include "infer/tiny_folder.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

std::vector<data::DataSource> source_of(const test::ScratchFolder& scratch, const std::string& text,
                                        std::optional<std::int64_t> take = std::nullopt,
                                        std::map<std::string, std::string> columns = {}) {
  test::put_file(scratch / "rows.jsonl", text);
  data::DataSource source{
      .spec = "rows.jsonl", .files = {scratch / "rows.jsonl"}, .take = take, .format = {}};
  source.format.columns = std::move(columns);
  return {source};
}

infer::PromptEncoder make_encoder(std::optional<std::string> system = std::nullopt) {
  return {text::Tokenizer::parse(testing::tiny_tokenizer_json(), "tokenizer.json"), nullptr,
          std::move(system)};
}

TEST(Batch, TakesTheLastAnswerOffEveryRowFormat) {
  const test::ScratchFolder scratch;
  const infer::Batch batch = infer::read_batch(
      source_of(
          scratch,
          R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"
          "\n"
          R"({"conversations": [{"from": "human", "value": "q1"}, {"from": "gpt", "value": "a1"}, {"from": "human", "value": "q2"}, {"from": "gpt", "value": "a2"}]})"
          "\n"
          R"({"query": "q", "response": "a", "history": [["h", "i"]]})"
          "\n"
          R"({"instruction": "do", "input": "this", "output": "done"})"
          "\n"
          R"({"query": "only a question"})"
          "\n"),
      true);
  ASSERT_EQ(batch.rows.size(), 5U);
  EXPECT_EQ(batch.rows[0].conversation.system, "s");
  EXPECT_EQ(batch.rows[0].label, "a");
  EXPECT_EQ(batch.rows[1].label, "a2");
  EXPECT_EQ(batch.rows[1].conversation.messages.size(), 3U);
  EXPECT_EQ(batch.rows[2].conversation.messages.size(), 3U);
  EXPECT_EQ(batch.rows[3].conversation.messages[0].content, "do\nthis");
  EXPECT_EQ(batch.rows[3].label, "done");
  EXPECT_EQ(batch.rows[4].label, std::nullopt);
  for (const infer::BatchRow& row : batch.rows) {
    EXPECT_EQ(row.conversation.messages.back().role, text::Role::kUser) << row.place;
  }
}

TEST(Batch, CountsBadRowsOrRefusesTheFirst) {
  const test::ScratchFolder scratch;
  const auto sources = source_of(scratch, "{\"query\": \"q\"}\n\n{oops\n{\"query\": 3}\n");
  const infer::Batch batch = infer::read_batch(sources, false);
  EXPECT_EQ(batch.rows.size(), 1U);
  EXPECT_EQ(batch.report.rows_dropped(), 2);
  EXPECT_THAT(batch.report.dropped[0].first_place, HasSubstr("rows.jsonl:3"));
  EXPECT_THAT(test::message_of<base::UserError>([&] { infer::read_batch(sources, true); }),
              HasSubstr("rows.jsonl:3: malformed JSON"));
  EXPECT_THAT(test::message_of<base::UserError>(
                  [&] { infer::read_batch(source_of(scratch, "{oops\n"), false); }),
              HasSubstr("no row is left to answer, 1 dropped: malformed JSON"));
}

TEST(Batch, TakesTheFirstRowsAndStartsAgainWhenThereAreFewer) {
  const test::ScratchFolder scratch;
  const std::string text = "{\"query\": \"a\"}\n{\"query\": \"b\"}\n{\"query\": \"c\"}\n";
  const infer::Batch two = infer::read_batch(source_of(scratch, text, 2), true);
  ASSERT_EQ(two.rows.size(), 2U);
  EXPECT_EQ(two.rows[1].conversation.messages[0].content, "b");
  const infer::Batch five = infer::read_batch(source_of(scratch, text, 5), true);
  ASSERT_EQ(five.rows.size(), 5U);
  EXPECT_EQ(five.rows[4].conversation.messages[0].content, "b");
  EXPECT_EQ(five.report.rows_repeated, 2);
}

TEST(Batch, RefusesAColumnThatNoRowHas) {
  const test::ScratchFolder scratch;
  EXPECT_THAT(test::message_of<base::UserError>([&] {
                infer::read_batch(
                    source_of(scratch, "{\"query\": \"a\"}\n", std::nullopt, {{"frage", "query"}}),
                    false);
              }),
              HasSubstr("--columns: no row has this column (got frage)"));
  const infer::Batch batch = infer::read_batch(
      source_of(scratch, "{\"frage\": \"a\"}\n", std::nullopt, {{"frage", "query"}}), false);
  EXPECT_EQ(batch.rows.size(), 1U);
}

TEST(Batch, RefusesLongPromptsUnlessToldWhatToDo) {
  const test::ScratchFolder scratch;
  const infer::Batch batch = infer::read_batch(
      source_of(scratch, "{\"query\": \"abc\"}\n{\"query\": \"abcdef\"}\n"), true);
  const infer::PromptEncoder encoder = make_encoder();
  infer::PromptPolicy policy{.max_length = 5, .max_tokens = 100, .truncation = std::nullopt};
  const std::string refusal =
      test::message_of<base::UserError>([&] { infer::encode_batch(batch, encoder, policy); });
  EXPECT_THAT(refusal, HasSubstr("rows.jsonl:2: the prompt is longer than the maximum length (got "
                                 "6 tokens, expected at most 5). Raise --max_length"));
  policy.truncation = config::TruncationStrategy::kDelete;
  const infer::Prompts deleted = infer::encode_batch(batch, encoder, policy);
  EXPECT_EQ(deleted.prompts.size(), 1U);
  EXPECT_EQ(deleted.left_out, 1);
  policy.truncation = config::TruncationStrategy::kLeft;
  const infer::Prompts shortened = infer::encode_batch(batch, encoder, policy);
  ASSERT_EQ(shortened.prompts.size(), 2U);
  EXPECT_EQ(shortened.prompts[1].ids, encoder.tokenizer().encode("bcdef"));
  EXPECT_EQ(shortened.prompts[1].row_number, 1);
  EXPECT_EQ(shortened.shortened, 1);
}

TEST(Batch, ShortensAPromptOnlyWhenTold) {
  const std::vector<std::int32_t> prompt = {1, 2, 3, 4, 5};
  infer::PromptPolicy policy{.max_length = 4, .max_tokens = 4, .truncation = std::nullopt};
  for (const auto strategy : {std::optional<config::TruncationStrategy>(),
                              std::optional(config::TruncationStrategy::kDelete)}) {
    policy.truncation = strategy;
    std::vector<std::int32_t> ids = prompt;
    EXPECT_EQ(infer::shorten_prompt(ids, policy), 0);
    EXPECT_EQ(ids, prompt);
  }
  policy.truncation = config::TruncationStrategy::kLeft;
  std::vector<std::int32_t> ids = prompt;
  EXPECT_EQ(infer::shorten_prompt(ids, policy), 2);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{3, 4, 5}));
  EXPECT_EQ(infer::shorten_prompt(ids, policy), 0);
}

TEST(Batch, KeepsAPlaceForTheAnswerInTheModelsPositions) {
  const test::ScratchFolder scratch;
  const infer::Batch batch =
      infer::read_batch(source_of(scratch, "{\"query\": \"abcdef\"}\n"), true);
  const infer::PromptPolicy policy{.max_length = 50, .max_tokens = 6, .truncation = std::nullopt};
  EXPECT_THAT(test::message_of<base::UserError>(
                  [&] { infer::encode_batch(batch, make_encoder(), policy); }),
              HasSubstr("no room for an answer in the model's positions (got 6 tokens, expected at "
                        "most 5)"));
}

TEST(Batch, WritesMessagesWithTheAnswerResponseAndLabel) {
  text::Conversation conversation;
  conversation.system = "s";
  conversation.messages.push_back(
      {.role = text::Role::kUser, .content = "q\n\"é\"", .loss = std::nullopt});
  const base::Json line = base::parse_json(infer::result_line(conversation, "a", "b"), "line");
  EXPECT_EQ(line["response"], "a");
  EXPECT_EQ(line["labels"], "b");
  EXPECT_EQ(
      line["messages"],
      base::Json::parse(
          R"([{"role":"system","content":"s"},{"role":"user","content":"q\n\"é\""},{"role":"assistant","content":"a"}])"));
  EXPECT_TRUE(
      base::parse_json(infer::result_line(conversation, "a", std::nullopt), "line")["labels"]
          .is_null());
}

TEST(ResultFile, GrowsLineByLineInNewFolders) {
  const test::ScratchFolder scratch;
  const auto path = scratch / "a/b/results.jsonl";
  {
    const infer::ResultFile file(path);
    file.append("{}");
    EXPECT_EQ(test::get_file(path), "{}\n");
    file.append("[]");
  }
  EXPECT_EQ(test::get_file(path), "{}\n[]\n");
  const infer::ResultFile again(path);
  EXPECT_EQ(test::get_file(path), "");
  test::put_file(scratch / "file", "");
  EXPECT_THROW(infer::ResultFile(scratch / "file/results.jsonl"), base::SystemError);
}

}  // namespace
}  // namespace longhaul
