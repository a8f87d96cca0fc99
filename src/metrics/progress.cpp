#include "metrics/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "metrics/duration.h"

namespace longhaul::metrics {
namespace {

constexpr int kMinBar = 8;
constexpr int kMaxBar = 40;
constexpr std::string_view kSeparator = " | ";

std::string rate_text(double tokens_per_second) {
  constexpr double kShowFraction = 100;
  constexpr double kLargest = 9e15;
  if (!(std::abs(tokens_per_second) < kLargest)) {
    return fmt::format("{} tokens/s", tokens_per_second);
  }
  if (std::abs(tokens_per_second) < kShowFraction) {
    return fmt::format("{:.1f} tokens/s", tokens_per_second);
  }
  return with_thousands(std::llround(tokens_per_second)) + " tokens/s";
}

/// The values after the step counter, most wanted first.
std::vector<std::string> value_texts(const Progress& progress) {
  std::vector<std::string> texts;
  if (progress.loss) {
    texts.push_back(fmt::format("loss {:.4f}", *progress.loss));
  }
  if (progress.tokens_per_second) {
    texts.push_back(rate_text(*progress.tokens_per_second));
  }
  if (progress.memory_gib) {
    texts.push_back(fmt::format("{:.1f} GiB", *progress.memory_gib));
  }
  std::string time = format_duration(progress.elapsed_s);
  if (progress.remaining_s) {
    time += ", ETA " + format_duration(*progress.remaining_s);
  }
  texts.push_back(time);
  return texts;
}

double share_done(const Progress& progress) {
  if (progress.max_steps <= 0) {
    return 0;
  }
  return std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.max_steps),
                    0.0, 1.0);
}

std::string bar_of(double share, int width) {
  const int inner = width - 2;
  const int filled = static_cast<int>(std::floor(share * inner));
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled < inner) {
    bar += '>';
    bar.append(static_cast<std::size_t>(inner - filled - 1), ' ');
  }
  return "[" + bar + "]";
}

}  // namespace

Progress progress_of(const StepRecord& record) {
  return {.step = record.global_step,
          .max_steps = record.max_steps,
          .loss = record.loss,
          .tokens_per_second = record.tokens_per_second,
          .memory_gib = record.memory_gib,
          .elapsed_s = record.elapsed_s,
          .remaining_s = record.remaining_s};
}

std::string progress_bar(const Progress& progress, int width) {
  const double share = share_done(progress);
  const std::string percent = fmt::format("{:3d}%", static_cast<int>(std::floor(share * 100)));
  std::string text = fmt::format("{}/{}", progress.step, progress.max_steps);
  const int room = width - static_cast<int>(percent.size()) - 1;
  for (const std::string& value : value_texts(progress)) {
    const std::size_t longer = text.size() + kSeparator.size() + value.size();
    if (static_cast<int>(longer) > room) {
      break;
    }
    text.append(kSeparator).append(value);
  }
  const int for_bar = std::min(room - static_cast<int>(text.size()) - 1, kMaxBar);
  std::string line = percent + " ";
  if (for_bar >= kMinBar) {
    line += bar_of(share, for_bar) + " ";
  }
  line += text;
  return line.substr(0, static_cast<std::size_t>(std::max(width, 0)));
}

std::string progress_line(const Progress& progress) {
  std::string line = fmt::format("step {}/{}", progress.step, progress.max_steps);
  for (const std::string& value : value_texts(progress)) {
    line.append(kSeparator).append(value);
  }
  return line;
}

std::string with_thousands(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

}  // namespace longhaul::metrics
