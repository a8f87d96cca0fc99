// Learning rate of every step, with transformers' formulas: step t from 0 of T, warm-up W.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "config/config.h"

namespace longhaul::train {

/// W = warmup_steps, else ceil(warmup_ratio · T).
std::int64_t warmup_steps(const config::TrainOptions& options, std::int64_t total_steps);

/// The rate of one run as a function of the step.
class LrSchedule {
 public:
  /// UserError for a `--lr_scheduler_kwargs` key that the schedule does not know.
  LrSchedule(const config::TrainOptions& options, double learning_rate, std::int64_t total_steps);

  /// Rate used by optimizer step `step` (from 0).
  [[nodiscard]] double at(std::int64_t step) const;

 private:
  [[nodiscard]] double factor(std::int64_t step) const;

  config::Schedule kind_;
  double learning_rate_;
  std::int64_t total_;
  std::int64_t warmup_;
  double num_cycles_ = 0.5;
  double min_rate_ = 0;
};

}  // namespace longhaul::train
