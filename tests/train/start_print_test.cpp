#include "train/start_print.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "train/tiny_run.h"

namespace longhaul::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::TinyRun;
using testing::Words;

/// The start-up print of a run, one text.
std::string printed(TinyRun& run, const Words& extra) {
  Words words = {"--max_steps", "1"};
  words.insert(words.end(), extra.begin(), extra.end());
  run.train("out", words);
  return fmt::format("{}", fmt::join(run.lines, "\n"));
}

TEST(StartPrint, SaysWhatIsTrainedAndHowItIsCut) {
  TinyRun run("smol");
  const std::string text =
      printed(run, {"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "3",
                    "--activation_policy", "C", "--lora_rank", "2"});
  // 2 layers of 24·(36+12+12) + 36·24 + 3·24·36 + 2 norms of 24, a final one, 50 rows of embedding;
  // rank 2 adapters.
  const std::int64_t layer = 24 * 60 + 36 * 24 + 3 * 24 * 36 + 48;
  const std::int64_t lora =
      2 * (2 * (24 + 36) + 2 * 2 * (24 + 12) + 2 * (36 + 24) + 3 * 2 * (24 + 36));
  const std::int64_t total = 2 * layer + 24 + 50 * 24 + lora;
  EXPECT_THAT(text, HasSubstr("(llama, 2 layers, float32)"));
  EXPECT_THAT(text,
              HasSubstr(fmt::format("{} parameters, {} trained", metrics::with_thousands(total),
                                    metrics::with_thousands(lora))));
  EXPECT_THAT(text, HasSubstr("ranks: 1, mesh dp 1 x sp 1"));
  EXPECT_THAT(text, HasSubstr("heads (query/KV): 9/3, per sp rank: 9/3"));
  EXPECT_THAT(text, HasSubstr("template: chatml"));
  EXPECT_THAT(text, HasSubstr("6 sequences per step (batch 2 x accumulation 3 x dp 1)"));
  EXPECT_THAT(text, HasSubstr("200 tokens per device"));
  EXPECT_THAT(text, HasSubstr("up to 600 tokens per step"));
  EXPECT_THAT(text, HasSubstr("steps: 1 (2 per epoch, 10 sequences per epoch)"));
  EXPECT_THAT(text, HasSubstr("attention: libtorch 2.11.0 fused CPU kernel"));
  EXPECT_THAT(text, HasSubstr("activation policy: 2xC"));
  EXPECT_THAT(text, HasSubstr("planned memory per rank: "));
  EXPECT_THAT(text, Not(HasSubstr("moments")));
}

TEST(StartPrint, NamesTheTypeOfSmallerOptimizerStates) {
  TinyRun run;
  EXPECT_THAT(printed(run, {"--train_type", "full", "--optimizer_state_dtype", "bfloat16"}),
              HasSubstr(" + optimizer 0.00 GB (bfloat16 moments) + activations "));
}

/// Facts of a mesh that this process does not start.
TEST(StartPrint, SaysTheHeadsOfEveryUlyssesRank) {
  TinyRun run("smol");
  config::Config config = run.config("out");
  config.mesh = {.dp = 2, .sp = 2};
  const model::Parameters parameters(config::build_registry(run.model(), {.full = true}),
                                     at::kFloat);
  run.train("out", {"--max_steps", "1"});  // makes the store in the cache
  const TextSetup text = make_text_setup(config, run.model());
  data::DataEnvironment environment;
  environment.cache_dir = run.path("cache");
  environment.places.here = run.path("");
  const data::Datasets datasets =
      data::load_datasets(config, data::encoding_of(*text.encoder), environment);
  const data::TrainSchedule schedule(datasets.train, config);
  plan::MemoryPlan plan;
  plan.policies = {{config::ActivationPreset::kD, true}, {}};
  plan.form = {.attention_groups = 2, .mlp_tile_rows = 8192};
  plan.bytes.host = 2'500'000'000;
  plan.fits = false;
  const std::vector<std::string> lines = start_lines({.config = config,
                                                      .model = run.model(),
                                                      .parameters = parameters,
                                                      .plan = plan,
                                                      .text = text,
                                                      .data = datasets.report,
                                                      .schedule = schedule,
                                                      .dtype = base::Dtype::kFloat32});
  const std::string all = fmt::format("{}", fmt::join(lines, "\n"));
  EXPECT_THAT(all, HasSubstr("ranks: 4, mesh dp 2 x sp 2 (Ulysses)"));
  EXPECT_THAT(all, HasSubstr("per sp rank: 5/2 4/2"));
  EXPECT_THAT(all, HasSubstr("rows of up to 100 tokens: 50 tokens per device"));
  EXPECT_THAT(all,
              HasSubstr("activation policy: 1xD+offload,1xA, attention in 2 head groups, MLP in "
                        "tiles of 8,192 rows"));
  EXPECT_THAT(all,
              HasSubstr("offload: activations of 1 of 2 layers, 2.50 GB of pinned host memory"));
  EXPECT_THAT(all, HasSubstr("warning: the plan is larger than the memory limit"));
}

}  // namespace
}  // namespace longhaul::train
