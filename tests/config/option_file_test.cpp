#include "config/option_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

struct Read {
  std::vector<GivenOption> given{};
  std::vector<std::pair<std::string, std::string>> environment{};
  std::vector<base::Problem> problems{};
};

Read read(const std::string& text, bool json = false) {
  Read result;
  parse_option_text(text, json, "run.yaml", result.given, result.environment, result.problems);
  return result;
}

std::string first_problem(const std::string& text, bool json = false) {
  const Read result = read(text, json);
  return result.problems.empty() ? "none" : result.problems.front().line();
}

TEST(OptionFile, YamlKeepsTextsAndLines) {
  const Read result = read(
      "# comment\n"
      "model: path/to model\n"
      "lora_rank: 16\n"
      "packing: true\n"
      "dataset:\n  - a.jsonl\n  - b.jsonl#10\n"
      "learning_rate: 1e-4\n"
      "max_steps: ~\n");
  ASSERT_EQ(result.given.size(), 5U);
  EXPECT_EQ(result.given[0].words, (std::vector<std::string>{"path/to model"}));
  EXPECT_EQ(result.given[1].where, "run.yaml:3: lora_rank");
  EXPECT_EQ(result.given[2].words, (std::vector<std::string>{"true"}));
  EXPECT_THAT(result.given[3].words, ElementsAre("a.jsonl", "b.jsonl#10"));
  EXPECT_EQ(result.given[4].words, (std::vector<std::string>{"1e-4"}));
}

TEST(OptionFile, NestedMapsBecomeJsonWithTheirTypes) {
  const Read result =
      read("lr_scheduler_kwargs:\n  min_lr: 1e-6\ncolumns: {text: \"1\", q: query}\n");
  EXPECT_EQ(result.given[0].words, (std::vector<std::string>{R"({"min_lr":1e-06})"}));
  EXPECT_EQ(result.given[1].words, (std::vector<std::string>{R"({"text":"1","q":"query"})"}));
}

TEST(OptionFile, JsonReadsTheSame) {
  const Read result = read(
      "{\n \"lora_rank\": 16,\n \"packing\": true,\n \"dataset\": [\"a\", \"b\"],\n"
      " \"system\": \"caf\\u00e9 \\ud83d\\ude00\", \"ENV\": {\"A_B\": 1, \"C\": \"x\"}}",
      true);
  EXPECT_TRUE(result.problems.empty());
  EXPECT_EQ(result.given[0].where, "run.yaml:2: lora_rank");
  EXPECT_EQ(result.given[0].words, (std::vector<std::string>{"16"}));
  EXPECT_EQ(result.given[1].words, (std::vector<std::string>{"true"}));
  EXPECT_THAT(result.given[2].words, ElementsAre("a", "b"));
  EXPECT_EQ(result.given[3].words, (std::vector<std::string>{"caf\u00e9 \U0001F600"}));
  EXPECT_THAT(result.environment, ElementsAre(Pair("A_B", "1"), Pair("C", "x")));
}

TEST(OptionFile, FaultsNameFileAndLine) {
  EXPECT_THAT(first_problem("a: 1\nb: [1\n"), HasSubstr("run.yaml:"));
  EXPECT_THAT(first_problem("seed: 1\nseed: 2\n"), HasSubstr("run.yaml:2: seed is given twice"));
  EXPECT_THAT(first_problem("- a\n- b\n"), HasSubstr("not a map of options"));
  EXPECT_THAT(first_problem("{\"a\": 1,}", true), HasSubstr("run.yaml:1: not valid JSON"));
  EXPECT_THAT(first_problem("a: \xff\n"), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(first_problem("ENV: 3\n"), HasSubstr("run.yaml:1: ENV: not a map"));
  EXPECT_THAT(first_problem("ENV:\n  \"A=B\": 1\n"), HasSubstr("got A=B"));
  EXPECT_EQ(first_problem(""), "none");
  EXPECT_EQ(first_problem("seed: 1\n---\n# more\nlora_rank: 2\n"),
            "run.yaml:4: a second YAML document; options are one map");
  EXPECT_EQ(first_problem("---\nseed: 1\n...\n---\n"), "none");
}

TEST(OptionFile, DeepAndEndlessTextsAreRefused) {
  EXPECT_THAT(first_problem("a: " + std::string(2000, '[')), HasSubstr("run.yaml"));
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string below = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + below;
    for (int j = 0; j < 9; ++j) {
      bomb += ", " + below;
    }
    bomb += "]\n";
  }
  EXPECT_THAT(first_problem(bomb), HasSubstr("too large"));
}

TEST(OptionFile, IsToldByItsEnding) {
  EXPECT_TRUE(is_option_file("a.yaml"));
  EXPECT_TRUE(is_option_file("b.yml"));
  EXPECT_TRUE(is_option_file("c.json"));
  EXPECT_FALSE(is_option_file("c.jsonl"));
  EXPECT_FALSE(is_option_file("--x=a.json"));
}

}  // namespace
}  // namespace longhaul::config
