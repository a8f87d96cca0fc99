// Whole runs in this process: what lies in the run folder, resuming, and what is refused.
#include "train/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/safetensors.h"
#include "train/checkpoint_files.h"
#include "train/tiny_run.h"
#include "train/trainer_state.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TinyRun;
using testing::Words;

Words join(const Words& a, const Words& b) {
  Words all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

std::set<std::string> names(const fs::path& folder) {
  std::set<std::string> list;
  for (const auto& entry : fs::directory_iterator(folder)) {
    list.insert(entry.path().filename().string());
  }
  return list;
}

TEST(Run, WritesTheWholeRunFolder) {
  TinyRun run;
  const RunResult result =
      run.train("out", {"--max_steps", "3", "--gradient_accumulation_steps", "2", "--report_to",
                        "tensorboard", "--split_dataset_ratio", "0.2", "--save_steps", "2",
                        "--create_checkpoint_symlink", "true"});
  EXPECT_EQ(names(run.path("out")),
            (std::set<std::string>{"args.json", "best", "checkpoint-2", "checkpoint-3", "images",
                                   "last", "logging.jsonl", "runs", "val_dataset.jsonl"}));
  EXPECT_EQ(result.run_folder, fs::canonical(run.path("out")).string());
  EXPECT_EQ(result.stop_signal, 0);
  EXPECT_EQ(result.summary.global_step, 3);
  EXPECT_EQ(result.summary.last_model_checkpoint,
            (fs::canonical(run.path("out")) / "checkpoint-3").string());
  const std::vector<base::OrderedJson> log = run.log("out");
  const base::OrderedJson& summary = log.back();
  EXPECT_EQ(summary["global_step"], 3);
  EXPECT_EQ(summary["last_model_checkpoint"], result.summary.last_model_checkpoint);
  for (const char* const key : {"loss",
                                "grad_norm",
                                "learning_rate",
                                "token_acc",
                                "epoch",
                                "global_step/max_steps",
                                "elapsed_time",
                                "remaining_time",
                                "memory(GiB)",
                                "train_speed(s/it)",
                                "tokens",
                                "target_tokens",
                                "tokens_per_second",
                                "tokens_per_second_per_device",
                                "mfu",
                                "host_memory(GiB)",
                                "comm_share",
                                "comm_gb_per_s",
                                "sp",
                                "dp"}) {
    EXPECT_TRUE(log.front().contains(key)) << key;
  }
  const TrainerState state = read_trainer_state(run.path("out/checkpoint-3"));
  EXPECT_EQ(state.global_step, 3);
  EXPECT_EQ(state.log_history.size(), 3U + 2U);  // three steps, evaluations after 2 and 3
}

TEST(Run, VersionFoldersCountUp) {
  TinyRun run;
  const Words words = {"--max_steps", "1", "--add_version", "true"};
  const std::string first = fs::path(run.train("out", words).run_folder).filename().string();
  const std::string second = fs::path(run.train("out", words).run_folder).filename().string();
  EXPECT_TRUE(first.starts_with("v0-")) << first;
  EXPECT_TRUE(second.starts_with("v1-")) << second;
}

TEST(Run, TheSameRunTwiceGivesTheSameBytes) {
  TinyRun run;
  const Words words = {"--max_steps", "3", "--gradient_accumulation_steps", "2"};
  run.train("a", words);
  run.train("b", words);
  const Words not_equal = {"args.json", "trainer_state.json", "manifest.json"};
  EXPECT_EQ(TinyRun::files(run.path("a/checkpoint-3"), not_equal),
            TinyRun::files(run.path("b/checkpoint-3"), not_equal));
}

// --- resuming

struct ResumeCase {
  std::string name;
  std::string model;
  base::Dtype dtype;
  Words words;
};

class Resume : public ::testing::TestWithParam<ResumeCase> {};

INSTANTIATE_TEST_SUITE_P(
    Kinds, Resume,
    ::testing::Values(
        ResumeCase{"lora", "smol", base::Dtype::kFloat32, {"--lora_dropout", "0.1"}},
        ResumeCase{"lora_bf16", "qwen2", base::Dtype::kBFloat16, {"--lora_dropout", "0.1"}},
        ResumeCase{"full", "qwen2_tied", base::Dtype::kFloat32, {"--train_type", "full"}},
        ResumeCase{"full_bf16", "llama", base::Dtype::kBFloat16, {"--train_type", "full"}},
        ResumeCase{"full_bf16_moments",
                   "llama",
                   base::Dtype::kBFloat16,
                   {"--train_type", "full", "--optimizer_state_dtype", "bfloat16"}},
        ResumeCase{"saved_head",
                   "smol",
                   base::Dtype::kFloat32,
                   {"--lora_dropout", "0.1", "--modules_to_save", "lm_head"}},
        ResumeCase{"packed",
                   "qwen3",
                   base::Dtype::kFloat32,
                   {"--lora_dropout", "0.1", "--packing", "true", "--max_length", "64",
                    "--neftune_noise_alpha", "5"}}),
    [](const auto& test) { return test.param.name; });

/// Both shuffles and dropout are on; four steps fill an epoch (three when rows are packed), so the
/// runs cross its border.
TEST_P(Resume, IsBitForBitTheRunThatNeverStopped) {
  const ResumeCase& test = GetParam();
  TinyRun run(test.model, test.dtype);
  const Words words = join({"--max_steps", "8", "--gradient_accumulation_steps", "3",
                            "--save_steps", "1", "--learning_rate", "0.01"},
                           test.words);
  run.train("whole", words);
  const Words varying = {"args.json", "trainer_state.json", "manifest.json"};
  const auto want = TinyRun::files(run.path("whole/checkpoint-8"), varying);
  ASSERT_GE(want.size(), 3U);
  for (const std::string step : {"2", "4", "7"}) {
    const std::string output = "from-" + step;
    run.train(output, join(words, {"--resume_from_checkpoint",
                                   run.path("whole/checkpoint-" + step).string()}));
    for (const auto& [name, bytes] : want) {
      EXPECT_EQ(test::get_file(run.path(output) / "checkpoint-8" / name), bytes)
          << name << " resumed from step " << step;
    }
    const TrainerState state = read_trainer_state(run.path(output) / "checkpoint-8");
    EXPECT_EQ(state.log_history.size(), 8U);
    EXPECT_EQ(run.log(output).size(), 8U - std::stoul(step) + 1);
  }
}

TEST(ResumedRun, GoesOnAfterAnInterruptedOne) {
  TinyRun run;
  const Words words = {"--max_steps",  "6",  "--gradient_accumulation_steps", "2",
                       "--save_steps", "100"};
  run.train("whole", words);
  run.interrupt_in_step = 3;
  EXPECT_EQ(run.train("stopped", words).stop_signal, 2);
  run.interrupt_in_step = 0;
  run.train("resumed", join(words, {"--resume_from_checkpoint", run.path("stopped").string()}));
  EXPECT_EQ(test::get_file(run.path("resumed/checkpoint-6/adapter_model.safetensors")),
            test::get_file(run.path("whole/checkpoint-6/adapter_model.safetensors")));
}

TEST(ResumedRun, TakesTheNewestWholeCheckpointAndSaysSo) {
  TinyRun run;
  const Words words = {"--max_steps",  "4", "--gradient_accumulation_steps", "2",
                       "--save_steps", "1"};
  run.train("a", words);
  const fs::path damaged = run.path("a/checkpoint-4/optimizer.safetensors");
  std::string bytes = test::get_file(damaged);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test::put_file(damaged, bytes);
  run.train("b", join(words, {"--resume_from_checkpoint", run.path("a").string()}));
  std::string said;
  for (const std::string& line : run.lines) {
    said += line + "\n";
  }
  EXPECT_THAT(said, AllOf(HasSubstr("checkpoint-4"), HasSubstr("optimizer.safetensors"),
                          HasSubstr("resumed from"), HasSubstr("after step 3")));
  const std::string error = test::message_of<base::UserError>([&] {
    run.train("c", join(words, {"--resume_from_checkpoint", run.path("a/checkpoint-4").string()}));
  });
  EXPECT_THAT(error, HasSubstr("optimizer.safetensors"));
  EXPECT_FALSE(fs::exists(run.path("c")));
}

TEST(ResumedRun, RefusesOptionsThatDifferAndListsThem) {
  TinyRun run;
  const Words words = {"--max_steps", "2", "--gradient_accumulation_steps", "2"};
  run.train("a", words);
  const std::string error = test::message_of<base::UserError>([&] {
    run.train("b", {"--max_steps", "9", "--gradient_accumulation_steps", "3", "--seed", "5",
                    "--lora_rank", "2", "--dataset", run.write_rows("other.jsonl", 9, 8),
                    "--resume_from_checkpoint", run.path("a/checkpoint-2").string()});
  });
  EXPECT_THAT(error, AllOf(HasSubstr("sequences per step differs"), HasSubstr("seed differs"),
                           HasSubstr("LoRA differs"), HasSubstr("data differs")));
  EXPECT_THAT(error, Not(HasSubstr("max_steps")));
  EXPECT_FALSE(fs::exists(run.path("b")));
}

TEST(ResumedRun, MayTrainLongerThanThePreviousOne) {
  TinyRun run;
  const Words words = {"--gradient_accumulation_steps", "2", "--lr_scheduler_type", "constant"};
  run.train("long", join(words, {"--max_steps", "5"}));
  run.train("short", join(words, {"--max_steps", "2"}));
  run.train("more", join(words, {"--max_steps", "5", "--resume_from_checkpoint",
                                 run.path("short/checkpoint-2").string()}));
  EXPECT_EQ(test::get_file(run.path("more/checkpoint-5/adapter_model.safetensors")),
            test::get_file(run.path("long/checkpoint-5/adapter_model.safetensors")));
}

TEST(ResumedRun, RefusesOptimizerStatesOfTheOtherType) {
  TinyRun run;
  const Words words = {"--train_type", "full", "--gradient_accumulation_steps", "2"};
  const Words small = join(words, {"--optimizer_state_dtype", "bfloat16"});
  const auto resume = [&](const Words& options, const std::string& from, const std::string& to) {
    run.train(to, join(options, {"--max_steps", "2", "--resume_from_checkpoint",
                                 run.path(from + "/checkpoint-1").string()}));
  };
  run.train("exact", join(words, {"--max_steps", "1"}));
  run.train("small", join(small, {"--max_steps", "1"}));
  EXPECT_THAT(test::message_of<base::UserError>([&] { resume(small, "exact", "b"); }),
              HasSubstr("--optimizer_state_dtype: differs from the checkpoint's (got bfloat16, "
                        "expected float32)"));
  EXPECT_THAT(test::message_of<base::UserError>([&] { resume(words, "small", "b"); }),
              HasSubstr("(got float32, expected bfloat16)"));
  EXPECT_FALSE(fs::exists(run.path("b")));
  resume(small, "small", "as-it-was");
  const base::SafetensorsReader reader(run.path("as-it-was/checkpoint-2/optimizer.safetensors"));
  EXPECT_EQ(reader.at("exp_avg/model.norm.weight").dtype, base::Dtype::kBFloat16);
}

TEST(ResumedRun, NeverReplacesACheckpointInItsFolder) {
  TinyRun run;
  const Words words = {"--max_steps", "3", "--save_steps", "1"};
  run.train("a", words);
  const auto before = TinyRun::files(run.path("a/checkpoint-3"));
  EXPECT_THAT(test::message_of<base::UserError>([&] {
                run.train("a", join(words, {"--resume_from_checkpoint",
                                            run.path("a/checkpoint-1").string()}));
              }),
              AllOf(HasSubstr("newer checkpoints"), HasSubstr("checkpoint-2, checkpoint-3")));
  EXPECT_EQ(TinyRun::files(run.path("a/checkpoint-3")), before);
}

TEST(ResumedRun, OfAFinishedRunSaysSoAndNamesItsCheckpoint) {
  TinyRun run;
  const Words words = {"--max_steps", "2"};
  run.train("a", words);
  const std::string last = run.path("a/checkpoint-2").string();
  const RunResult result = run.train("b", join(words, {"--resume_from_checkpoint", last}));
  EXPECT_EQ(result.summary.last_model_checkpoint, last);
  EXPECT_EQ(result.summary.global_step, 2);
  EXPECT_THAT(run.lines, Contains(HasSubstr("all 2 steps were trained before")));
}

TEST(ResumedRun, NeedsTheTrainingState) {
  TinyRun run;
  const Words words = {"--max_steps", "2", "--save_only_model", "true"};
  run.train("a", words);
  EXPECT_THAT(test::message_of<base::UserError>([&] {
                run.train("b", join(words, {"--resume_from_checkpoint",
                                            run.path("a/checkpoint-2").string()}));
              }),
              HasSubstr("--save_only_model"));
}

TEST(ResumedRun, KeepsTheBestCheckpointOfTheEarlierRun) {
  TinyRun run;
  // A rate that makes it worse: the first evaluation stays the best.
  const Words words = {"--gradient_accumulation_steps",
                       "2",
                       "--learning_rate",
                       "1",
                       "--lr_scheduler_type",
                       "constant",
                       "--eval_strategy",
                       "steps",
                       "--eval_steps",
                       "1",
                       "--save_steps",
                       "1",
                       "--val_dataset",
                       run.write_rows("v.jsonl", 3, 4).string()};
  const RunResult first = run.train("a", join(words, {"--max_steps", "1"}));
  const RunResult second = run.train(
      "b", join(words, {"--max_steps", "2", "--resume_from_checkpoint", run.path("a").string()}));
  ASSERT_TRUE(first.summary.best_metric && second.summary.best_metric);
  EXPECT_LE(*second.summary.best_metric, *first.summary.best_metric);
  if (*second.summary.best_metric == *first.summary.best_metric) {
    EXPECT_EQ(second.summary.best_model_checkpoint, first.summary.best_model_checkpoint);
  }
}

// --- refusals

TEST(Run, RefusesAFolderThatHoldsAnotherRunBeforeReadingAnything) {
  TinyRun run;
  run.train("out", {"--max_steps", "1"});
  const auto before = TinyRun::files(run.path("out"));
  EXPECT_THROW(run.train("out", {"--max_steps", "1"}), base::UserError);
  EXPECT_TRUE(run.calls.empty());
  EXPECT_EQ(TinyRun::files(run.path("out")), before);
}

TEST(Run, StartsFromAnAdapterAndTrainsItOn) {
  TinyRun run;
  run.train("first", {"--max_steps", "2", "--learning_rate", "0.01"});
  const std::string adapter = run.path("first/checkpoint-2").string();
  run.train("second", {"--max_steps", "1", "--learning_rate", "0", "--adapters", adapter});
  const base::SafetensorsReader before(run.path("first/checkpoint-2/adapter_model.safetensors"));
  const base::SafetensorsReader after(run.path("second/checkpoint-1/adapter_model.safetensors"));
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& [name, view] : before.tensors()) {
    EXPECT_TRUE(std::equal(view.bytes.begin(), view.bytes.end(), after.at(name).bytes.begin(),
                           after.at(name).bytes.end()))
        << name;
  }
}

TEST(Run, RefusesAnAdapterOfAnotherModelAndWritesNothing) {
  TinyRun other("qwen3");
  other.train("out", {"--max_steps", "1"});
  TinyRun run("llama");
  EXPECT_THAT(test::message_of<base::UserError>([&] {
                run.train("out", {"--adapters", other.path("out/checkpoint-1").string()});
              }),
              HasSubstr("Is this an adapter of another model?"));
  EXPECT_FALSE(fs::exists(run.path("out")));
}

TEST(Run, LossFallsOnRowsThatItSeesAgainAndAgain) {
  TinyRun run("qwen3");
  run.train("out", {"--max_steps", "25", "--gradient_accumulation_steps", "10", "--learning_rate",
                    "0.02", "--lora_dropout", "0"});
  const std::vector<base::OrderedJson> log = run.log("out");
  EXPECT_LT(log[24]["loss"].get<double>(), 0.6 * log[0]["loss"].get<double>());
}

}  // namespace
}  // namespace longhaul::train
