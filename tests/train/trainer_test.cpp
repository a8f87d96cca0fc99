// The loop: what happens after which step.
#include "train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "train/checkpoint_files.h"
#include "train/tiny_run.h"

namespace longhaul::train {
namespace {

using ::testing::ElementsAre;
using testing::TinyRun;
using testing::Words;

/// Ten rows, two per step: five steps per epoch.
const Words kFiveSteps = {"--gradient_accumulation_steps", "2", "--activation_policy", "A"};

Words with(const Words& more) {
  Words words = kFiveSteps;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::int64_t> steps_with(const TinyRun& run, const std::string& key) {
  std::vector<std::int64_t> steps;
  for (const base::OrderedJson& line : run.log("out")) {
    if (line.contains(key)) {
      const auto text = line["global_step/max_steps"].get<std::string>();
      steps.push_back(std::stoll(text.substr(0, text.find('/'))));
    }
  }
  return steps;
}

std::vector<std::int64_t> checkpoints(const TinyRun& run) {
  std::vector<std::int64_t> steps;
  for (const std::filesystem::path& path : list_checkpoints(run.path("out"))) {
    steps.push_back(*checkpoint_step(path));
  }
  return steps;
}

TEST(Trainer, LogsTheFirstEveryNthAndTheLastStep) {
  TinyRun run;
  run.train("out", with({"--max_steps", "7", "--logging_steps", "3"}));
  EXPECT_THAT(steps_with(run, "loss"), ElementsAre(1, 3, 6, 7));
  TinyRun quiet;
  quiet.train("out",
              with({"--max_steps", "5", "--logging_steps", "3", "--logging_first_step", "false"}));
  EXPECT_THAT(steps_with(quiet, "loss"), ElementsAre(3, 5));
}

TEST(Trainer, SavesEveryNthAndTheLastStep) {
  TinyRun run;
  run.train("out", with({"--max_steps", "7", "--save_steps", "3"}));
  EXPECT_THAT(checkpoints(run), ElementsAre(3, 6, 7));
  TinyRun never;
  never.train("out", with({"--max_steps", "4", "--save_strategy", "no", "--save_steps", "1"}));
  EXPECT_THAT(checkpoints(never), ElementsAre(4));
  TinyRun epochs;
  epochs.train("out", with({"--num_train_epochs", "2.4", "--save_strategy", "epoch"}));
  EXPECT_THAT(checkpoints(epochs), ElementsAre(5, 10, 12));
}

TEST(Trainer, EvaluatesOnStartEveryNthAndTheLastStep) {
  TinyRun run;
  const std::string rows = run.write_rows("val.jsonl", 3, 5).string();
  const auto result =
      run.train("out", with({"--max_steps", "5", "--val_dataset", rows, "--eval_strategy", "steps",
                             "--eval_steps", "2", "--eval_on_start", "true", "--save_steps", "2"}));
  EXPECT_THAT(steps_with(run, "eval_loss"), ElementsAre(0, 2, 4, 5));
  EXPECT_TRUE(result.summary.best_metric.has_value());
  TinyRun off;
  off.train("out", with({"--max_steps", "2", "--val_dataset", off.write_rows("v.jsonl", 2, 5),
                         "--eval_strategy", "no"}));
  EXPECT_THAT(steps_with(off, "eval_loss"), ElementsAre());
  TinyRun epochs;
  epochs.train("out", with({"--max_steps", "11", "--val_dataset",
                            epochs.write_rows("v.jsonl", 2, 5), "--eval_strategy", "epoch"}));
  EXPECT_THAT(steps_with(epochs, "eval_loss"), ElementsAre(5, 10, 11));
}

TEST(Trainer, EvaluationDoesNotChangeTraining) {
  TinyRun plain;
  plain.train("out", with({"--max_steps", "3"}));
  TinyRun watched;
  watched.train("out",
                with({"--max_steps", "3", "--val_dataset", watched.write_rows("v.jsonl", 4, 9),
                      "--eval_strategy", "steps", "--eval_steps", "1", "--eval_on_start", "true"}));
  EXPECT_EQ(test::get_file(plain.path("out/checkpoint-3/adapter_model.safetensors")),
            test::get_file(watched.path("out/checkpoint-3/adapter_model.safetensors")));
}

TEST(Trainer, TellsItsSurroundingsInOrder) {
  TinyRun run;
  run.train("out", with({"--max_steps", "2", "--save_steps", "1"}));
  EXPECT_THAT(run.calls, ElementsAre("read the data", "connect the ranks", "load the weights",
                                     "step", "begin 1", "save checkpoint", "step", "end 1",
                                     "begin 2", "save checkpoint", "step", "end 2"));
}

TEST(Trainer, ARequestToStopEndsWithThatStepAndItsCheckpoint) {
  TinyRun run;
  run.interrupt_in_step = 4;
  const auto result = run.train(
      "out", with({"--max_steps", "9", "--val_dataset", run.write_rows("v.jsonl", 2, 5),
                   "--eval_strategy", "steps", "--eval_steps", "2", "--logging_steps", "100"}));
  EXPECT_EQ(result.stop_signal, 2);
  EXPECT_EQ(result.summary.global_step, 4);
  EXPECT_THAT(checkpoints(run), ElementsAre(4));
  EXPECT_THAT(steps_with(run, "loss"), ElementsAre(1, 4));
  EXPECT_THAT(steps_with(run, "eval_loss"), ElementsAre(2));  // none while the user waits
  EXPECT_EQ(run.log("out").back()["global_step"], 4);         // the summary is there
}

TEST(Trainer, UsesTheRateOfItsStep) {
  TinyRun run;
  run.train("out", with({"--max_steps", "4", "--learning_rate", "0.01", "--warmup_steps", "2",
                         "--lr_scheduler_type", "linear"}));
  std::vector<double> rates;
  for (const base::OrderedJson& line : run.log("out")) {
    if (line.contains("loss")) {
      rates.push_back(line["learning_rate"].get<double>());
    }
  }
  EXPECT_THAT(rates, ElementsAre(0.0, 0.005, 0.01, 0.005));
}

}  // namespace
}  // namespace longhaul::train
