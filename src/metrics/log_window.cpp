#include "metrics/log_window.h"

namespace longhaul::metrics {
namespace {

double quotient(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

void LogWindow::add(const StepSample& sample) {
  last_ = sample;
  ++num_steps_;
  loss_sum_ += sample.loss;
  seconds_ += sample.seconds;
  comm_wait_s_ += sample.comm_wait_s;
  comm_bytes_ += sample.comm_bytes;
  comm_busy_s_ += sample.comm_busy_s;
  model_flops_ += sample.model_flops.value_or(0);
  tokens_ += sample.tokens;
  target_tokens_ += sample.target_tokens;
  correct_tokens_ += sample.correct_tokens;
}

StepRecord LogWindow::take() {
  constexpr double kGigabyte = 1e9;
  const auto devices = static_cast<double>(constants_.num_devices);
  StepRecord record;
  record.loss = num_steps_ > 0 ? loss_sum_ / static_cast<double>(num_steps_) : 0;
  record.token_acc =
      quotient(static_cast<double>(correct_tokens_), static_cast<double>(target_tokens_));
  record.grad_norm = last_.grad_norm;
  record.learning_rate = last_.learning_rate;
  record.tokens = last_.tokens;
  record.target_tokens = last_.target_tokens;
  record.train_speed_s_per_it = num_steps_ > 0 ? seconds_ / static_cast<double>(num_steps_) : 0;
  record.tokens_per_second = quotient(static_cast<double>(tokens_), seconds_);
  record.tokens_per_second_per_device = record.tokens_per_second / devices;
  if (constants_.peak_flops) {
    record.mfu = quotient(model_flops_ / devices, seconds_) / *constants_.peak_flops;
  }
  record.comm_share = quotient(comm_wait_s_, seconds_);
  record.comm_gb_per_s = quotient(comm_bytes_, comm_busy_s_) / kGigabyte;
  record.sp = constants_.sp;
  record.dp = constants_.dp;
  *this = LogWindow(constants_);
  return record;
}

double remaining_seconds(double elapsed_s, std::int64_t steps_done, std::int64_t steps_left) {
  if (steps_done <= 0) {
    return 0;
  }
  return elapsed_s / static_cast<double>(steps_done) * static_cast<double>(steps_left);
}

}  // namespace longhaul::metrics
