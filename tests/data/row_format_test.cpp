#include "data/row_format.h"

#include <random>

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

/// `S:system U:… A:…` or `! reason`.
std::string convert(const std::string& row, RowFormat format = {}) {
  const RowResult result = RowConverter(std::move(format)).convert(row);
  if (!result.conversation) {
    EXPECT_FALSE(result.fault.ok());
    return "! " + result.fault.reason;
  }
  EXPECT_TRUE(result.fault.ok());
  std::string text;
  if (result.conversation->system) {
    text += "S:" + *result.conversation->system + "|";
  }
  for (const text::Message& message : result.conversation->messages) {
    text += message.role == text::Role::kUser ? "U:" : "A:";
    text += message.content;
    text += message.loss ? (*message.loss ? "+|" : "-|") : "|";
  }
  return text;
}

RowFormat pretraining() {
  RowFormat format;
  format.pretraining = true;
  return format;
}

TEST(RowFormat, ReadsQueryResponseWithSynonyms) {
  EXPECT_EQ(convert(R"({"query": "q", "response": "r"})"), "U:q|A:r|");
  for (const char* query : {"query", "prompt", "input", "instruction", "question", "problem"}) {
    for (const char* response : {"response", "answer", "output", "targets", "target", "answer_key",
                                 "answers", "solution", "text", "completion", "content"}) {
      EXPECT_EQ(
          convert("{\"" + std::string(query) + "\": \" q \", \"" + response + "\": \"r\\n\"}"),
          "U: q |A:r\n|");
    }
  }
}

TEST(RowFormat, ReadsHistoryAndSystem) {
  EXPECT_EQ(
      convert(
          R"({"system": "s", "history": [["a", "b"], ["c", "d"]], "query": "q", "response": "r"})"),
      "S:s|U:a|A:b|U:c|A:d|U:q|A:r|");
  EXPECT_EQ(convert(R"({"system_prompt": "s", "history": [], "prompt": "q", "output": "r"})"),
            "S:s|U:q|A:r|");
  EXPECT_EQ(convert(R"({"history": [["a"]], "query": "q", "response": "r"})"), "! wrong type");
  EXPECT_EQ(convert(R"({"history": "[]", "query": "q", "response": "r"})"), "! wrong type");
  EXPECT_EQ(convert(R"({"history": [["a", 1]], "query": "q", "response": "r"})"), "! wrong type");
}

TEST(RowFormat, JoinsAlpacaInstructionAndInput) {
  EXPECT_EQ(convert(R"({"instruction": "i", "input": "n", "output": "o"})"), "U:i\nn|A:o|");
  EXPECT_EQ(convert(R"({"instruction": "i", "input": "", "output": "o"})"), "U:i|A:o|");
  EXPECT_EQ(convert(R"({"instruction": "i", "input": null, "output": "o"})"), "U:i|A:o|");
  EXPECT_EQ(convert(R"({"instruction": "", "input": "n", "output": "o"})"), "U:n|A:o|");
  EXPECT_EQ(convert(R"({"instruction": "i", "input": "n", "output": "o", "text": "all of it"})"),
            "U:i\nn|A:o|");
  EXPECT_EQ(convert(R"({"instruction": "i", "input": "n", "query": "q", "output": "o"})"),
            "! several columns for the query");
}

TEST(RowFormat, ReadsMessagesAndShareGpt) {
  EXPECT_EQ(
      convert(R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
                        {"role": "assistant", "content": "a"}]})"),
      "S:s|U:u|A:a|");
  EXPECT_EQ(convert(R"({"system": "s", "conversations": [{"from": "human", "value": "u"},
                        {"from": "gpt", "value": "a"}, {"from": "user", "value": "v"},
                        {"from": "bot", "value": "b"}]})"),
            "S:s|U:u|A:a|U:v|A:b|");
  EXPECT_EQ(
      convert(R"({"conversation": [{"human": "u", "assistant": "a"}, {"user": "v", "gpt": "b"}]})"),
      "U:u|A:a|U:v|A:b|");
}

TEST(RowFormat, KeepsAQuestionWithoutAnswer) {
  EXPECT_EQ(convert(R"({"messages": [{"role": "user", "content": "u"}]})"), "U:u|");
  EXPECT_EQ(convert(R"({"query": "q"})"), "U:q|");
}

TEST(RowFormat, ReadsTheLossOfAMessage) {
  const auto row = [](const std::string& user, const std::string& assistant) {
    return convert(R"({"messages": [{"role": "user", "content": "u")" + user +
                   R"(}, {"role": "assistant", "content": "a")" + assistant + "}]}");
  };
  EXPECT_EQ(row("", R"(, "loss": true)"), "U:u|A:a+|");
  EXPECT_EQ(row("", R"(, "loss": false)"), "U:u|A:a-|");
  EXPECT_EQ(row("", R"(, "loss": 0.0)"), "U:u|A:a-|");
  EXPECT_EQ(row("", R"(, "loss": 1)"), "U:u|A:a+|");
  EXPECT_EQ(row("", R"(, "loss": null)"), "U:u|A:a|");
  EXPECT_EQ(row(R"(, "loss": false)", ""), "U:u|A:a|");
  EXPECT_EQ(row("", R"(, "loss": 0.5)"), "! wrong type");
  EXPECT_EQ(row("", R"(, "loss": "yes")"), "! wrong type");
  EXPECT_EQ(row(R"(, "loss": true)", ""), "! loss on a message that is not the assistant's");
}

TEST(RowFormat, TakesPlainTextForPretrainingOnly) {
  EXPECT_EQ(convert(R"({"text": "t"})", pretraining()), "A:t|");
  EXPECT_EQ(convert(R"({"messages": [{"role": "assistant", "content": "t"}]})", pretraining()),
            "A:t|");
  EXPECT_EQ(convert(R"({"text": "t"})"), "! an answer without a question");
  EXPECT_EQ(convert(R"({"messages": [{"role": "assistant", "content": "t"}]})"),
            "! an answer without a question");
}

TEST(RowFormat, RenamesColumns) {
  RowFormat format;
  format.columns = {{"ask", "query"}, {"reply", "response"}};
  EXPECT_EQ(convert(R"({"ask": "q", "reply": "r", "query": "x"})", format), "U:q|A:r|");
  const RowConverter converter(format);
  EXPECT_EQ(converter.convert(R"({"reply": "r", "query": "q"})").columns_seen, 2U);
}

TEST(RowFormat, ReadsConfiguredKeysAndRoles) {
  RowFormat format;
  format.role_key = "speaker";
  format.content_key = "says";
  format.user_role = "me";
  format.assistant_role = "it";
  format.system_role = "rules";
  EXPECT_EQ(
      convert(R"({"messages": [{"speaker": "rules", "says": "s"}, {"speaker": "me", "says": "u"},
                        {"speaker": "it", "says": "a"}]})",
              format),
      "S:s|U:u|A:a|");
  EXPECT_EQ(convert(R"({"messages": [{"speaker": "user", "says": "u"}]})", format),
            "! unknown role");
}

TEST(RowFormat, NamesEveryKindOfBadRow) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"messages": [)", "malformed JSON"},
      {R"({"query": "q" "response": "r"})", "malformed JSON"},
      {R"({"query": "q"} x)", "malformed JSON"},
      {"{\"query\": \"a\tb\"}", "malformed JSON"},
      {R"({"query": NaN})", "malformed JSON"},
      {"{\"query\": \"\xff\"}", "invalid UTF-8"},
      {"{\"query\": \"\xed\xa0\x80\"}", "invalid UTF-8"},
      {R"({"query": "\ud800"})", "lone surrogate"},
      {R"({"query": "\ud800x"})", "lone surrogate"},
      {R"({"query": "\udc00"})", "lone surrogate"},
      {"{\"query\": " + std::string(600, '[') + std::string(600, ']') + "}",
       "nested deeper than 512 levels"},
      {"[1, 2]", "wrong type"},
      {"\"text\"", "wrong type"},
      {"{}", "no known format"},
      {R"({"foo": 1, "bar": 2})", "no known format"},
      {R"({"query": 5, "response": "r"})", "wrong type"},
      {R"({"query": "q", "response": ["r"]})", "wrong type"},
      {R"({"messages": "hi"})", "wrong type"},
      {R"({"messages": {}})", "wrong type"},
      {R"({"messages": []})", "no messages"},
      {R"({"messages": [{"role": "system", "content": "s"}]})", "no messages"},
      {R"({"messages": ["hi"]})", "wrong type"},
      {R"({"messages": [{"role": "user"}]})", "a message without role or content"},
      {R"({"messages": [{"role": "user", "content": null}]})", "wrong type"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]})",
       "wrong type"},
      {R"({"messages": [{"role": 1, "content": "x"}]})", "wrong type"},
      {R"({"messages": [{"role": "wizard", "content": "x"}]})", "unknown role"},
      {R"({"messages": [{"role": "tool", "content": "x"}]})",
       "tool messages are not available yet"},
      {R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a",
           "tool_calls": [{}]}]})",
       "message key \"tool_calls\" is not available yet"},
      {R"({"messages": [{"role": "user", "content": "u", "weight": 0}]})",
       "message key \"weight\" is not available yet"},
      {R"({"messages": [{"role": "user", "content": "u"}, {"role": "user", "content": "v"}]})",
       "roles do not alternate"},
      {R"({"messages": [{"role": "user", "content": "u"}, {"role": "system", "content": "s"}]})",
       "a system message that is not the first"},
      {R"({"system": "x", "messages": [{"role": "system", "content": "y"}, {"role": "user", "content": "u"}]})",
       "two different system texts in one row"},
      {R"({"system": 3, "query": "q"})", "wrong type"},
      {R"({"prompt": "q", "question": "q", "response": "r"})", "several columns for the query"},
      {R"({"query": "q", "answer": "r", "output": "r"})", "several columns for the response"},
      {R"({"query": "q", "response": "r", "images": ["a.png"]})",
       "column \"images\" is not available yet"},
      {R"({"query": "q", "response": "r", "tools": "[{}]"})",
       "column \"tools\" is not available yet"},
      {R"({"query": "q", "response": "r", "rejected_response": "x"})",
       "column \"rejected_response\" is not available yet"},
      {R"({"query": "q", "response": "r", "negative_messages": [1]})",
       "column \"negative_messages\" is not available yet"},
  };
  for (const auto& [row, reason] : cases) {
    EXPECT_EQ(convert(row), "! " + reason) << row;
  }
}

TEST(RowFormat, IgnoresColumnsThatSayNothing) {
  EXPECT_EQ(
      convert(
          R"({"query": "q", "response": "r", "images": [], "tools": null, "id": 7, "negative_score": 1})"),
      "U:q|A:r|");
  EXPECT_EQ(convert(R"({"system": "s", "messages": [{"role": "system", "content": "s"},
                        {"role": "user", "content": "u", "tool_calls": null, "weight": 1}]})"),
            "S:s|U:u|");
}

TEST(RowFormat, PointsAtTheColumnOfMalformedJson) {
  const RowResult result = RowConverter({}).convert(R"({"query": oops})");
  EXPECT_THAT(result.fault.detail, testing::StartsWith("column 1"));
}

TEST(RowFormat, RefusesMoreColumnsThanItCanTrack) {
  RowFormat format;
  for (int i = 0; i < 65; ++i) {
    format.columns["c" + std::to_string(i)] = "query";
  }
  EXPECT_THROW(RowConverter{format}, base::UserError);
}

TEST(RowFormat, SurvivesMutatedRows) {
  const std::vector<std::string> seeds = {
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "h\u00e9\ud83d\ude00"}, {"role": "assistant", "content": "a", "loss": false}]})",
      R"({"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}], "system": "x"})",
      R"({"instruction": "i", "input": "n", "output": "o", "history": [["a", "b"], [null, "d"]]})",
      R"({"conversation": [{"human": "u", "assistant": "a"}], "images": [], "n": 1.5e-3})",
  };
  const std::string bytes = "{}[]\",:\\u0dD8\xff\xc3\x00tfn-e.";
  std::mt19937 random(7);
  const RowConverter converter({});
  int converted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string row = seeds[random() % seeds.size()];
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % row.size();
      const char byte = bytes[random() % bytes.size()];
      switch (random() % 4) {
        case 0:
          row[at] = byte;
          break;
        case 1:
          row.insert(at, 1, byte);
          break;
        case 2:
          row.erase(at, 1 + random() % 9);
          break;
        default:
          row.insert(at, row.substr(random() % row.size(), random() % 30));
      }
      if (row.empty()) {
        row = "{";
      }
    }
    const RowResult result = converter.convert(row);
    ASSERT_NE(result.conversation.has_value(), !result.fault.ok()) << row;
    if (result.conversation) {
      ++converted;
      ASSERT_FALSE(result.conversation->messages.empty()) << row;
      for (const text::Message& message : result.conversation->messages) {
        ASSERT_TRUE(base::is_valid_utf8(message.content)) << row;
      }
    }
  }
  EXPECT_GT(converted, 300);  // the mutations reach both sides
  EXPECT_LT(converted, 19500);
}

}  // namespace
}  // namespace longhaul::data
