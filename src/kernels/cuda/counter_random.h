// The random numbers of dropout and noise: the formula of cpu_kernels.inc.cpp stated for the
// device. Both draw the same bits, or a run could not move between devices; a test compares them.
#pragma once

#include <cstdint>

#include "kernels/mix.h"

namespace longhaul::kernels::cuda {

/// 24 random bits for (row, column); `row_mix` = mix(row key ^ mix(seed key)).
static constexpr std::uint32_t counter_bits(std::uint64_t row_mix, std::int64_t column) {
  const std::uint64_t word =
      mix(row_mix + static_cast<std::uint64_t>(column) * 0x9E3779B97F4A7C15ULL);
  return static_cast<std::uint32_t>(word >> 40);
}

}  // namespace longhaul::kernels::cuda
