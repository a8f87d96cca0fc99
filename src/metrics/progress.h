// The text of the progress display: a bar that fits a terminal line, or a plain line for files and
// pipes. Pure functions; the command prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "metrics/step_record.h"

namespace longhaul::metrics {

/// What the display shows; absent values are left out.
struct Progress {
  std::int64_t step = 0;
  std::int64_t max_steps = 0;
  std::optional<double> loss{};
  std::optional<double> tokens_per_second{};
  std::optional<double> memory_gib{};
  double elapsed_s = 0;
  /// Absent before the first step has been timed.
  std::optional<double> remaining_s{};
};

Progress progress_of(const StepRecord& record);

/// One line of at most `width` ASCII characters, without carriage return:
/// ` 12% [=====>          ] 12/100 | loss 1.2345 | 5,210 tokens/s | 3.1 GiB | 1m 3s, ETA 7m 42s`.
/// A narrow terminal loses first the bar, then the values from the right.
std::string progress_bar(const Progress& progress, int width);

/// The same for a log that is not a terminal: `step 12/100 | loss 1.2345 | …`.
std::string progress_line(const Progress& progress);

/// 1234567 → "1,234,567".
std::string with_thousands(std::int64_t value);

}  // namespace longhaul::metrics
