// What happened since the previous log line, folded into one StepRecord: which fields are averages
// over the window and which belong to the last step alone is decided here, in one place.
#pragma once

#include <cstdint>
#include <optional>

#include "metrics/step_record.h"

namespace longhaul::metrics {

/// One optimizer step, already summed over all ranks; times are wall clock of the step.
struct StepSample {
  double loss = 0;  // nats per target token of this step
  double grad_norm = 0;
  double learning_rate = 0;
  std::int64_t tokens = 0;
  std::int64_t target_tokens = 0;
  std::int64_t correct_tokens = 0;
  double seconds = 0;
  /// Time that a device waited for communication, mean over devices.
  double comm_wait_s = 0;
  /// Bytes that one device sent and received in exchanges, and the time that these took.
  double comm_bytes = 0;
  double comm_busy_s = 0;
  /// Model FLOPs of the step, all devices together; with `peak_flops` they give mfu.
  std::optional<double> model_flops{};
};

/// The fixed surroundings of a run.
struct WindowConstants {
  std::int64_t num_devices = 1;
  std::int64_t sp = 1;
  std::int64_t dp = 1;
  /// Peak FLOP/s of one device; absent: mfu is absent (the CPU, and GPUs that are not known).
  std::optional<double> peak_flops{};
};

/// Collects steps and gives the record's window fields: `loss` the mean of the step losses,
/// `token_acc` by tokens, rates and comm_* over the window; grad_norm, learning_rate, tokens and
/// target_tokens of the last step.
class LogWindow {
 public:
  explicit LogWindow(WindowConstants constants) : constants_(constants) {}

  void add(const StepSample& sample);
  [[nodiscard]] std::int64_t num_steps() const { return num_steps_; }
  /// Fills those fields (epoch, steps, times and memory are the caller's) and starts the next
  /// window.
  StepRecord take();

 private:
  WindowConstants constants_;
  StepSample last_;
  std::int64_t num_steps_ = 0;
  double loss_sum_ = 0;
  double seconds_ = 0;
  double comm_wait_s_ = 0;
  double comm_bytes_ = 0;
  double comm_busy_s_ = 0;
  double model_flops_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t target_tokens_ = 0;
  std::int64_t correct_tokens_ = 0;
};

/// Seconds left at the speed of the steps done by this process; 0 before the first.
double remaining_seconds(double elapsed_s, std::int64_t steps_done, std::int64_t steps_left);

}  // namespace longhaul::metrics
