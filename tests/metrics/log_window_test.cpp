#include "metrics/log_window.h"

#include <gtest/gtest.h>

namespace longhaul::metrics {
namespace {

StepSample first_step() {
  return {.loss = 4,
          .grad_norm = 1,
          .learning_rate = 0.1,
          .tokens = 100,
          .target_tokens = 10,
          .correct_tokens = 10,
          .seconds = 1,
          .comm_wait_s = 0.5,
          .comm_bytes = 1e9,
          .comm_busy_s = 0.5,
          .model_flops = 400};
}

StepSample second_step() {
  return {.loss = 2,
          .grad_norm = 3,
          .learning_rate = 0.2,
          .tokens = 500,
          .target_tokens = 30,
          .correct_tokens = 0,
          .seconds = 3,
          .comm_wait_s = 0.5,
          .comm_bytes = 5e9,
          .comm_busy_s = 1,
          .model_flops = 1200};
}

TEST(LogWindow, AveragesOverTheStepsSinceTheLastLine) {
  LogWindow window({.num_devices = 4, .sp = 2, .dp = 2, .peak_flops = 1000});
  window.add(first_step());
  window.add(second_step());
  EXPECT_EQ(window.num_steps(), 2);
  const StepRecord record = window.take();
  EXPECT_EQ(record.loss, 3);          // mean of the step losses
  EXPECT_EQ(record.token_acc, 0.25);  // 10 of 40 target tokens
  EXPECT_EQ(record.tokens_per_second, 150);
  EXPECT_EQ(record.tokens_per_second_per_device, 37.5);
  EXPECT_EQ(record.train_speed_s_per_it, 2);
  EXPECT_EQ(record.comm_share, 0.25);
  EXPECT_EQ(record.comm_gb_per_s, 4);
  EXPECT_EQ(record.mfu, 0.1);  // 1600 FLOPs / 4 devices / 4 s / 1000
  EXPECT_EQ(record.sp, 2);
  EXPECT_EQ(record.dp, 2);
}

TEST(LogWindow, TakesNormRateAndTokensFromTheLastStep) {
  LogWindow window({});
  window.add(first_step());
  window.add(second_step());
  const StepRecord record = window.take();
  EXPECT_EQ(record.grad_norm, 3);
  EXPECT_EQ(record.learning_rate, 0.2);
  EXPECT_EQ(record.tokens, 500);
  EXPECT_EQ(record.target_tokens, 30);
  EXPECT_EQ(record.mfu, std::nullopt);
}

TEST(LogWindow, StartsAnewAfterEachLine) {
  LogWindow window({.num_devices = 1, .sp = 3, .dp = 1, .peak_flops = {}});
  window.add(first_step());
  window.take();
  EXPECT_EQ(window.num_steps(), 0);
  window.add(second_step());
  const StepRecord record = window.take();
  EXPECT_EQ(record.loss, 2);
  EXPECT_EQ(record.token_acc, 0);
  EXPECT_EQ(record.sp, 3);
}

TEST(LogWindow, WithoutTargetsOrTimeGivesZerosNotNan) {
  LogWindow window({});
  window.add({.loss = 0, .tokens = 5});
  const StepRecord record = window.take();
  EXPECT_EQ(record.token_acc, 0);
  EXPECT_EQ(record.tokens_per_second, 0);
  EXPECT_EQ(record.comm_share, 0);
  EXPECT_EQ(record.comm_gb_per_s, 0);
  EXPECT_EQ(LogWindow({}).take().loss, 0);
}

TEST(RemainingSeconds, ExtrapolatesTheStepsOfThisProcess) {
  EXPECT_EQ(remaining_seconds(10, 5, 20), 40);
  EXPECT_EQ(remaining_seconds(10, 0, 20), 0);
  EXPECT_EQ(remaining_seconds(10, 5, 0), 0);
}

}  // namespace
}  // namespace longhaul::metrics
