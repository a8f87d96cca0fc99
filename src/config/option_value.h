// Text of an option's value → checked value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/option.h"

namespace longhaul::config {

/// Checks `words` (the words after the option) against the row. Empty result: `fault` says what is
/// wrong.
std::optional<OptionValue> check_value(const OptionSpec& spec,
                                       const std::vector<std::string>& words, std::string& fault);

/// A whole decimal integer / a finite decimal number; nothing else around it.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);
/// `true` or `false` in any case.
std::optional<bool> parse_boolean(std::string_view text);
/// A size in bytes: `40000000000`, `40e9`, `40GB` (powers of 1000), `40GiB` (powers of 1024).
std::optional<std::int64_t> parse_bytes(std::string_view text);

}  // namespace longhaul::config
