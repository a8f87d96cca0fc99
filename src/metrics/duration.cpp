#include "metrics/duration.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>

namespace longhaul::metrics {
namespace {

constexpr std::int64_t kMinute = 60;
constexpr std::int64_t kHour = 60 * kMinute;
constexpr std::int64_t kDay = 24 * kHour;
constexpr double kLongest = 1e15;

std::int64_t unit_seconds(char unit) {
  switch (unit) {
    case 'd':
      return kDay;
    case 'h':
      return kHour;
    case 'm':
      return kMinute;
    case 's':
      return 1;
    default:
      return 0;
  }
}

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > kLongest) {
    return "-";
  }
  const auto whole = static_cast<std::int64_t>(std::floor(seconds));
  const std::int64_t days = whole / kDay;
  const std::int64_t hours = whole % kDay / kHour;
  const std::int64_t minutes = whole % kHour / kMinute;
  const std::int64_t rest = whole % kMinute;
  if (days > 0) {
    return fmt::format("{}d {}h {}m {}s", days, hours, minutes, rest);
  }
  if (hours > 0) {
    return fmt::format("{}h {}m {}s", hours, minutes, rest);
  }
  if (minutes > 0) {
    return fmt::format("{}m {}s", minutes, rest);
  }
  return fmt::format("{}s", rest);
}

std::optional<double> parse_duration(std::string_view text) {
  std::int64_t total = 0;
  std::int64_t last_unit = kDay + 1;
  while (true) {
    std::int64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const auto digits = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || count < 0 || digits >= text.size()) {
      return std::nullopt;
    }
    const std::int64_t unit = unit_seconds(text[digits]);
    if (unit == 0 || unit >= last_unit || static_cast<double>(count) > kLongest / kDay) {
      return std::nullopt;
    }
    total += count * unit;
    last_unit = unit;
    text.remove_prefix(digits + 1);
    if (text.empty()) {
      return static_cast<double>(total);
    }
    if (text.front() != ' ') {
      return std::nullopt;
    }
    text.remove_prefix(1);
  }
}

}  // namespace longhaul::metrics
