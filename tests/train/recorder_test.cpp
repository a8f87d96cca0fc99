#include "train/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/scratch.h"
#include "metrics/jsonl_reader.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;

struct Seen {
  metrics::Progress progress;
  bool is_log_line;
};

RecorderOptions options_for(const fs::path& folder, std::vector<Seen>* seen = nullptr) {
  RecorderOptions options;
  options.run_folder = folder;
  options.tensorboard = false;
  options.window = {.num_devices = 2, .sp = 2, .dp = 1};
  options.max_steps = 10;
  if (seen != nullptr) {
    options.progress = [seen](const metrics::Progress& progress, bool is_log_line) {
      seen->push_back({progress, is_log_line});
    };
  }
  return options;
}

StepNote note(std::int64_t step, double loss, bool is_logged) {
  return {.global_step = step,
          .epoch = static_cast<double>(step) / 4,
          .learning_rate = 1e-3 / static_cast<double>(step),
          .seconds = 0.5,
          .outcome = {.loss = loss,
                      .grad_norm = loss / 10,
                      .tokens = 100 * step,
                      .target_tokens = 10 * step,
                      .correct_tokens = step},
          .is_logged = is_logged};
}

TEST(Recorder, ALogLineCoversTheStepsSinceTheOneBefore) {
  const test::ScratchFolder folder;
  Recorder recorder(options_for(folder.path()), {});
  recorder.step(note(1, 4.0, true));
  recorder.step(note(2, 3.0, false));
  recorder.step(note(3, 2.0, true));
  const metrics::RunLog log = metrics::read_log(folder / "logging.jsonl");
  ASSERT_EQ(log.steps.size(), 2U);
  EXPECT_EQ(log.steps[0].loss, 4.0);
  EXPECT_EQ(log.steps[1].loss, 2.5);  // mean of the step losses
  EXPECT_EQ(log.steps[1].grad_norm, 0.2);
  EXPECT_EQ(log.steps[1].learning_rate, 1e-3 / 3);
  EXPECT_EQ(log.steps[1].tokens, 300);
  EXPECT_EQ(log.steps[1].target_tokens, 30);
  EXPECT_DOUBLE_EQ(log.steps[1].token_acc, 5.0 / 50.0);
  EXPECT_DOUBLE_EQ(log.steps[1].tokens_per_second, 500.0);
  EXPECT_DOUBLE_EQ(log.steps[1].tokens_per_second_per_device, 250.0);
  EXPECT_EQ(log.steps[1].global_step, 3);
  EXPECT_EQ(log.steps[1].max_steps, 10);
  EXPECT_EQ(log.steps[1].epoch, 0.75);
  EXPECT_EQ(log.steps[1].sp, 2);
  EXPECT_EQ(log.steps[1].mfu, std::nullopt);
  EXPECT_GT(log.steps[1].memory_gib, 0);
  EXPECT_GT(log.steps[1].host_memory_gib, 0);
}

/// Two steps of 0.5 s on two devices: tokens · (4·N + 6·N_lora + 6·L·Hq·d·s), N by hand, the LM head on a tenth of the rows.
TEST(Recorder, TellsTheShareOfAKnownDevicesPeak) {
  const test::ScratchFolder folder;
  RecorderOptions options = options_for(folder.path());
  options.window.peak_flops = 1e9;
  options.sizes = {.num_layers = 2,
                   .hidden = 8,
                   .num_query_heads = 2,
                   .num_kv_heads = 1,
                   .head_dim = 4,
                   .intermediate = 16,
                   .vocabulary = 100};
  options.kind = {.lora_weights = 50};
  Recorder recorder(options, {});
  StepNote first = note(1, 4.0, false);
  first.outcome.attended_length = 30;
  StepNote second = note(2, 3.0, true);
  second.outcome.attended_length = 60;
  recorder.step(first);
  recorder.step(second);
  const double layers = 2 * (8 * 16 + 8 * 8 + 3 * 8 * 16);
  const double products = 4 * (layers + 0.1 * 800) + 6 * 50;
  const double flops = 100 * (products + 96 * 30) + 200 * (products + 96 * 60);
  const metrics::RunLog log = metrics::read_log(folder / "logging.jsonl");
  ASSERT_TRUE(log.steps.at(0).mfu.has_value());
  EXPECT_DOUBLE_EQ(*log.steps[0].mfu, flops / 2 / 1.0 / 1e9);
}

TEST(Recorder, LinesAreThereBeforeTheRunEnds) {
  const test::ScratchFolder folder;
  Recorder recorder(options_for(folder.path()), {});
  recorder.step(note(1, 4.0, true));
  EXPECT_EQ(metrics::read_log(folder / "logging.jsonl").steps.size(), 1U);
  recorder.evaluation({.loss = 1.5, .token_acc = 0.25, .target_tokens = 8}, 0.25, 1, 2.0);
  const metrics::RunLog log = metrics::read_log(folder / "logging.jsonl");
  ASSERT_EQ(log.evaluations.size(), 1U);
  EXPECT_EQ(log.evaluations[0].eval_loss, 1.5);
  EXPECT_EQ(log.evaluations[0].eval_token_acc, 0.25);
  EXPECT_EQ(log.evaluations[0].global_step, 1);
  EXPECT_FALSE(log.summary.has_value());
}

TEST(Recorder, TellsProgressAtEveryStep) {
  const test::ScratchFolder folder;
  std::vector<Seen> seen;
  Recorder recorder(options_for(folder.path(), &seen), {});
  recorder.step(note(1, 4.0, false));
  recorder.step(note(2, 3.0, true));
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_FALSE(seen[0].is_log_line);
  EXPECT_EQ(seen[0].progress.step, 1);
  EXPECT_EQ(seen[0].progress.loss, 4.0);
  EXPECT_TRUE(seen[1].is_log_line);
  EXPECT_EQ(seen[1].progress.max_steps, 10);
  EXPECT_EQ(seen[1].progress.loss, 3.5);
  EXPECT_TRUE(seen[1].progress.tokens_per_second.has_value());
}

TEST(Recorder, HistoryGoesOnFromTheRunThatIsResumed) {
  const test::ScratchFolder folder;
  metrics::StepRecord earlier;
  earlier.global_step = 4;
  RecorderOptions options = options_for(folder.path());
  options.start_step = 4;
  Recorder recorder(options, {earlier});
  recorder.step(note(5, 1.0, true));
  recorder.evaluation({.loss = 1.5}, 1.25, 5, 0.1);
  ASSERT_EQ(recorder.log_history().size(), 3U);
  EXPECT_EQ(std::get<metrics::StepRecord>(recorder.log_history()[0]).global_step, 4);
  EXPECT_EQ(std::get<metrics::StepRecord>(recorder.log_history()[1]).global_step, 5);
  EXPECT_EQ(std::get<metrics::EvalRecord>(recorder.log_history()[2]).eval_loss, 1.5);
  // The log file of this run holds its own lines only.
  EXPECT_EQ(metrics::read_log(folder / "logging.jsonl").steps.size(), 1U);
}

TEST(Recorder, EndsWithTheSummaryAndTheCurves) {
  const test::ScratchFolder folder;
  RecorderOptions options = options_for(folder.path());
  options.tensorboard = true;
  Recorder recorder(options, {});
  recorder.step(note(1, 4.0, true));
  recorder.step(note(2, 3.0, true));
  recorder.finish({.last_model_checkpoint = "/run/checkpoint-2", .global_step = 2});
  const metrics::RunLog log = metrics::read_log(folder / "logging.jsonl");
  ASSERT_TRUE(log.summary.has_value());
  EXPECT_EQ(log.summary->last_model_checkpoint, "/run/checkpoint-2");
  EXPECT_TRUE(fs::exists(folder / "images" / "train_loss.png"));
  const auto events = std::count_if(
      fs::directory_iterator(folder / "runs"), fs::directory_iterator{}, [](const auto& entry) {
        return entry.path().filename().string().starts_with("events.out.tfevents.");
      });
  EXPECT_EQ(events, 1);
}

TEST(Recorder, WithoutTensorBoardWritesNoEvents) {
  const test::ScratchFolder folder;
  Recorder recorder(options_for(folder.path()), {});
  recorder.step(note(1, 4.0, true));
  recorder.finish({});
  EXPECT_FALSE(fs::exists(folder / "runs"));
}

}  // namespace
}  // namespace longhaul::train
