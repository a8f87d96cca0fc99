#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "config/options.h"

namespace longhaul::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

ParsedOptions parse(const Words& words, Command command = Command::kSft) {
  return parse_options(command, words);
}

std::string problems(const ParsedOptions& parsed) {
  std::string text;
  for (const base::Problem& problem : parsed.problems) {
    text += problem.line() + "\n";
  }
  return text;
}

TEST(OptionParser, ReadsBothFormsListsAndNegativeNumbers) {
  const ParsedOptions parsed =
      parse({"--model", "m", "--lora_rank=16", "--dataset", "a.jsonl", "b.jsonl#5", "--max_steps",
             "-1", "--learning_rate", "2e-5", "--packing", "--packing_strategy", "sequential"});
  EXPECT_EQ(problems(parsed), "");
  EXPECT_EQ(parsed.config.model.model, "m");
  EXPECT_EQ(parsed.config.tuning.lora_rank, 16);
  EXPECT_THAT(parsed.config.data.dataset, ElementsAre("a.jsonl", "b.jsonl#5"));
  EXPECT_EQ(parsed.config.train.max_steps, -1);
  EXPECT_EQ(parsed.config.train.learning_rate, 2e-5);
  EXPECT_TRUE(parsed.config.data.packing);
  EXPECT_EQ(parsed.config.data.packing_strategy, PackingStrategy::kSequential);
  EXPECT_EQ(parsed.config.given.at("dataset"), "a.jsonl b.jsonl#5");
  EXPECT_EQ(parsed.config.given.count("seed"), 0U);
}

TEST(OptionParser, LaterValuesWinAndAliasesAreTheSameOption) {
  const ParsedOptions parsed = parse({"--train_type", "lora", "--seed", "1", "--tuner-type", "full",
                                      "--seed=7", "--evaluation_strategy", "epoch"});
  EXPECT_EQ(problems(parsed), "");
  EXPECT_EQ(parsed.config.tuning.train_type, "full");
  EXPECT_EQ(parsed.config.train.seed, 7);
  EXPECT_EQ(parsed.config.output.eval_strategy, Interval::kEpoch);
}

TEST(OptionParser, ListsEveryFaultWithTheUsersText) {
  const ParsedOptions parsed =
      parse({"stray", "--lora_rnk", "8", "--lora_rank", "0", "--lora_dropout", "1", "--packing",
             "yes", "--seed", "1", "2", "--optim", "sgd", "--model", "--gpu_memory_limit", "40G",
             "--temperature", "1"});
  const std::string text = problems(parsed);
  EXPECT_EQ(parsed.problems.size(), 10U) << text;
  EXPECT_THAT(text, HasSubstr("stray: unexpected word"));
  EXPECT_THAT(text, HasSubstr("--lora_rnk: unknown option. Did you mean --lora_rank?"));
  EXPECT_THAT(text,
              HasSubstr("--lora_rank: out of range (got 0, expected an integer from 1 to 65536)"));
  EXPECT_THAT(
      text, HasSubstr("--lora_dropout: out of range (got 1, expected a number from 0 to below 1)"));
  EXPECT_THAT(text,
              HasSubstr("--packing: neither true nor false (got yes, expected true | false)"));
  EXPECT_THAT(text, HasSubstr("--seed: takes one value (got 1 2"));
  EXPECT_THAT(text,
              HasSubstr("--optim: not one of the accepted values (got sgd, expected adamw_torch | "
                        "adamw_torch_fused)"));
  EXPECT_THAT(text, HasSubstr("--model: has no value"));
  EXPECT_THAT(text, HasSubstr("--gpu_memory_limit: not a memory size (got 40G"));
  EXPECT_THAT(text, HasSubstr("--temperature: not an option of longhaul sft. It belongs to infer"));
}

TEST(OptionParser, RefusesTextsThatNameNothingOrAreNotUtf8) {
  EXPECT_THAT(problems(parse({"--output_dir", ""})), HasSubstr("--output_dir: is empty"));
  EXPECT_THAT(problems(parse({"--adapters="})), HasSubstr("--adapters: is empty"));
  EXPECT_THAT(problems(parse({"--dataset", "a", ""})), HasSubstr("--dataset: is empty"));
  EXPECT_THAT(problems(parse({"--model", "m\xff"})),
              HasSubstr("--model: not UTF-8 text (got m\\xff"));
  EXPECT_THAT(problems(parse({"--dataset", "a", "\xed\xa0\x80"})), HasSubstr("not UTF-8 text"));
  EXPECT_THAT(problems(parse({"--columns", "{\"a\": \"\xc3\"}"})), HasSubstr("not UTF-8 text"));
  EXPECT_EQ(problems(parse({"--model", "模型", "--dataset", "é.jsonl"})), "");
}

TEST(OptionParser, RefusesByNameWhatDoesNotExistYet) {
  const std::vector<Words> refused = {
      {"--use_hf", "true"},    {"--streaming"},
      {"--galore", "true"},    {"--use_galore", "true"},
      {"--galore_rank", "64"}, {"--rope_scaling", "yarn"},
      {"--ring_size", "2"},    {"--zero2_offload_optimizer", "true"}};
  for (const Words& words : refused) {
    EXPECT_THAT(problems(parse(words)), HasSubstr(words[0] + ": not available yet")) << words[0];
  }
  EXPECT_EQ(problems(parse({"--use_hf", "false", "--streaming", "false", "--deepspeed", "zero0",
                            "--galore", "false", "--zero2_offload_optimizer", "false"})),
            "");
  EXPECT_THAT(problems(parse({"--report_to", "wandb"})), HasSubstr("got wandb"));
  EXPECT_THAT(problems(parse({"--lora_bias", "all"})), HasSubstr("got all"));
  EXPECT_THAT(problems(parse({"--loss_scale", "react"})), HasSubstr("got react"));
  EXPECT_THAT(problems(parse({"--train_type", "longlora"})), HasSubstr("got longlora"));
}

TEST(OptionParser, ValidatesAndNamesOptionsWithoutEffect) {
  const ParsedOptions parsed = parse({"--dataloader_num_workers", "4", "--use_liger_kernel", "true",
                                      "--gradient_checkpointing_kwargs",
                                      R"({"use_reentrant": false})", "--ddp_backend", "nccl"});
  EXPECT_EQ(problems(parsed), "");
  EXPECT_THAT(parsed.config.no_effect, ElementsAre("dataloader_num_workers", "use_liger_kernel",
                                                   "gradient_checkpointing_kwargs", "ddp_backend"));
  EXPECT_THAT(problems(parse({"--dataloader_num_workers", "-1"})), HasSubstr("out of range"));
  EXPECT_THAT(problems(parse({"--ddp_backend", "smoke"})), HasSubstr("got smoke"));
}

TEST(OptionParser, PtIsSftOnPlainText) {
  EXPECT_FALSE(parse({}, Command::kPt).config.model.use_chat_template);
  EXPECT_EQ(parse({}, Command::kPt).config.data.loss_scale, LossScale::kAll);
  EXPECT_TRUE(parse({}).config.model.use_chat_template);
  EXPECT_EQ(parse({"--loss_scale", "default"}, Command::kPt).config.data.loss_scale,
            LossScale::kDefault);
}

TEST(OptionParser, HelpIsNoticedAnywhere) {
  EXPECT_TRUE(parse({"--seed", "1", "--help"}).wants_help);
  EXPECT_TRUE(parse({"--dataset", "a", "-h"}).wants_help);
  EXPECT_FALSE(parse({"--seed", "1"}).wants_help);
}

TEST(OptionParser, FlagsWinOverTheFileThatComesFirst) {
  const std::string path = testing::TempDir() + "/option_parser_test.yaml";
  std::ofstream(path) << "lora_rank: 4\nseed: 9\n";
  const ParsedOptions parsed = parse({path, "--lora_rank", "32"});
  EXPECT_EQ(problems(parsed), "");
  EXPECT_EQ(parsed.config.tuning.lora_rank, 32);
  EXPECT_EQ(parsed.config.train.seed, 9);
  EXPECT_THAT(problems(parse({"--seed", "1", path})), HasSubstr("takes one value"));
  EXPECT_THAT(problems(parse({"no/such/file.yaml"})), HasSubstr("no/such/file.yaml"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace longhaul::config
