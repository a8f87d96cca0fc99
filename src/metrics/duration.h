// Durations as people read them ("1h 2m 3s") and back.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace longhaul::metrics {

/// Whole seconds, rounded down: "3s", "1m 3s", "2h 0m 5s", "1d 0h 0m 0s"; "-" when negative, NaN or
/// infinite.
std::string format_duration(double seconds);
/// Reads what format_duration writes; nothing for any other text.
std::optional<double> parse_duration(std::string_view text);

}  // namespace longhaul::metrics
