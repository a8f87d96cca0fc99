#pragma once

#include <cstdint>

namespace longhaul::base {

/// a / b rounded up; a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The first multiple of `unit` that is not below `value`; value >= 0, unit > 0.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return ceil_div(value, unit) * unit;
}

}  // namespace longhaul::base
