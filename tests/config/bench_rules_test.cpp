#include "config/bench_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/scratch.h"
#include "config/options.h"
#include "config/validate.h"

namespace longhaul::config {
namespace {

using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

Config config_of(const Words& words, std::int64_t ranks = 1, std::int64_t gpus = 0) {
  return load_config(parse_options(Command::kBench, words),
                     {.ranks = ranks, .local_ranks = ranks, .usable_gpus = gpus});
}

std::string faults_of(const Words& words, std::int64_t ranks = 1) {
  return test::message_of<base::UserError>([&] { config_of(words, ranks); });
}

TEST(BenchRules, AllRanksShareARowAndDefaultsAreThoseOfTheFigures) {
  const Config config =
      config_of({"train", "--shape", "qwen2.5-7b", "--lengths", "64", "4096"}, 2, 2);
  EXPECT_EQ(config.mesh.sp, 2);
  EXPECT_EQ(config.mesh.dp, 1);
  EXPECT_EQ(config.row_length, 4096);
  EXPECT_EQ(config.tuning.lora_rank, 16);
  EXPECT_EQ(config.tuning.lora_dropout, 0);
  EXPECT_EQ(config.model.torch_dtype, base::Dtype::kBFloat16);
  EXPECT_EQ(bench_policies(config), Words{"auto"});
  EXPECT_EQ(config_of({"train", "--shape", "tiny", "--lora_rank", "3"}).tuning.lora_rank, 3);
}

TEST(BenchRules, AttentionTakesTheHeadsOfOneOfSeveralRanks) {
  const Config config =
      config_of({"attention", "--shape", "qwen2.5-7b", "--sequence_parallel_size", "4"});
  EXPECT_EQ(config.mesh.sp, 4);
  EXPECT_THAT(faults_of({"attention", "--shape", "tiny", "--sequence_parallel_size", "9"}),
              HasSubstr("--sequence_parallel_size: more ranks than the model's 8 query heads"));
  EXPECT_THAT(faults_of({"attention", "--shape", "tiny"}, 2), HasSubstr("one rank on one device"));
}

TEST(BenchRules, PartAndShapeAreAskedFor) {
  const std::string nothing = faults_of({});
  EXPECT_THAT(nothing, HasSubstr("expected train, ladder, attention or exchange"));
  EXPECT_THAT(nothing, HasSubstr("--shape: missing, and so is --model"));
  EXPECT_THAT(faults_of({"atention", "--shape", "lama3.1-8b"}),
              HasSubstr("Did you mean longhaul bench attention?"));
  EXPECT_THAT(faults_of({"train", "--shape", "lama3.1-8b"}),
              HasSubstr("Did you mean llama3.1-8b?"));
  EXPECT_THAT(faults_of({"train", "--shape", "tiny", "--model", "m"}),
              HasSubstr("--shape: --model is given, too"));
}

TEST(BenchRules, ExchangeNeedsSomebodyToExchangeWith) {
  EXPECT_THAT(faults_of({"exchange", "--shape", "tiny"}), HasSubstr("NPROC_PER_NODE=2"));
  EXPECT_EQ(config_of({"exchange", "--shape", "tiny"}, 3).mesh.sp, 3);
  EXPECT_THAT(faults_of({"exchange", "--shape", "tiny"}, 9), HasSubstr("NPROC_PER_NODE"));
}

TEST(BenchRules, OptionsOfOtherPartsAreRefused) {
  const std::string text = faults_of({"attention", "--shape", "tiny", "--policies", "A",
                                      "--lora_rank", "4", "--optimizer_state_dtype", "bfloat16"});
  EXPECT_THAT(text, HasSubstr("--policies: has no meaning for longhaul bench attention"));
  EXPECT_THAT(text, HasSubstr("--lora_rank: has no meaning"));
  EXPECT_THAT(text, HasSubstr("--optimizer_state_dtype: has no meaning"));
  EXPECT_THAT(faults_of({"train", "--shape", "tiny", "--sequence_parallel_size", "2"}, 2),
              HasSubstr("--sequence_parallel_size: has no meaning for longhaul bench train"));
  EXPECT_THAT(faults_of({"attention", "--shape", "tiny", "--attention_rehearsal", "4"}, 1),
              HasSubstr("--attention_rehearsal: has no meaning"));
  EXPECT_THAT(faults_of({"exchange", "--shape", "tiny", "--packing_mean", "9"}, 2),
              HasSubstr("--packing_mean: has no meaning"));
  EXPECT_THAT(faults_of({"train", "--shape", "tiny", "--train_type", "full", "--lora_rank", "4"}),
              HasSubstr("--lora_rank: has no meaning with --train_type full"));
}

TEST(BenchRules, EveryPolicyIsChecked) {
  EXPECT_EQ(bench_policies(config_of({"train", "--shape", "tiny", "--policies", "A", "1xB,1xC"})),
            (Words{"A", "1xB,1xC"}));
  const std::string text =
      faults_of({"train", "--shape", "tiny", "--policies", "A", "3xA", "E", "D+offload"});
  EXPECT_THAT(text, HasSubstr("got 3xA"));
  EXPECT_THAT(text, HasSubstr("got E"));
  EXPECT_THAT(text, HasSubstr("the ranks are CPU ranks (got D+offload)"));
  EXPECT_THAT(text, Not(HasSubstr("--activation_policy")));
  EXPECT_THAT(
      faults_of({"train", "--shape", "tiny", "--policies", "A", "--activation_policy", "B"}),
      HasSubstr("--policies: --activation_policy is given, too"));
}

TEST(BenchRules, LongRowsAreMeasuredLessOften) {
  EXPECT_EQ(bench_steps({}, 65536).measured, 5);
  EXPECT_EQ(bench_steps({}, 65536).warm_up, 2);
  EXPECT_EQ(bench_steps({}, 131072).measured, 2);
  EXPECT_EQ(bench_steps({}, 262144).measured, 1);
  BenchOptions seven;
  seven.steps = 7;
  EXPECT_EQ(bench_steps(seven, 262144).measured, 7);
  EXPECT_EQ(bench_steps(seven, 1024).warm_up, 2);
}

}  // namespace
}  // namespace longhaul::config
