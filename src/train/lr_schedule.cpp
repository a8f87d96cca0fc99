#include "train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace longhaul::train {

std::int64_t warmup_steps(const config::TrainOptions& options, std::int64_t total_steps) {
  if (options.warmup_steps > 0) {
    return options.warmup_steps;
  }
  return static_cast<std::int64_t>(
      std::ceil(options.warmup_ratio * static_cast<double>(total_steps)));
}

LrSchedule::LrSchedule(const config::TrainOptions& options, double learning_rate,
                       std::int64_t total_steps)
    : kind_(options.lr_scheduler_type),
      learning_rate_(learning_rate),
      total_(total_steps),
      warmup_(warmup_steps(options, total_steps)) {
  const bool cosine =
      kind_ == config::Schedule::kCosine || kind_ == config::Schedule::kCosineWithMinLr;
  for (const auto& [key, value] : options.lr_scheduler_kwargs) {
    if (cosine && key == "num_cycles") {
      num_cycles_ = value;
    } else if (kind_ == config::Schedule::kCosineWithMinLr && key == "min_lr") {
      min_rate_ = learning_rate > 0 ? value / learning_rate : 0;
    } else if (kind_ == config::Schedule::kCosineWithMinLr && key == "min_lr_rate") {
      min_rate_ = value;
    } else {
      throw base::UserError(base::Problem{
          .where = "--lr_scheduler_kwargs",
          .what = "not a setting of this --lr_scheduler_type",
          .got = key,
          .expected =
              cosine ? "num_cycles, and min_lr or min_lr_rate for cosine_with_min_lr" : "none"});
    }
  }
}

double LrSchedule::factor(std::int64_t step) const {
  const auto t = static_cast<double>(step);
  const auto warm = static_cast<double>(std::max<std::int64_t>(1, warmup_));
  if (kind_ == config::Schedule::kConstant) {
    return 1.0;
  }
  if (step < warmup_) {
    return t / warm;
  }
  const auto rest = static_cast<double>(std::max<std::int64_t>(1, total_ - warmup_));
  const double progress = (t - static_cast<double>(warmup_)) / rest;
  const double wave = 0.5 * (1.0 + std::cos(std::numbers::pi * num_cycles_ * 2.0 * progress));
  switch (kind_) {
    case config::Schedule::kLinear:
      return std::max(0.0, static_cast<double>(total_ - step) / rest);
    case config::Schedule::kCosine:
      return std::max(0.0, wave);
    case config::Schedule::kCosineWithMinLr:
      return std::max(0.0, wave * (1.0 - min_rate_) + min_rate_);
    default:
      return 1.0;
  }
}

double LrSchedule::at(std::int64_t step) const { return learning_rate_ * factor(step); }

}  // namespace longhaul::train
