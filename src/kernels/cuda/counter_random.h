// The random numbers of dropout and noise: the formula of cpu_kernels.inc.cpp stated for the
// device. Both draw the same bits, or a run could not move between devices; a test compares them.
#pragma once

#include <cstdint>

namespace longhaul::kernels::cuda {

/// SplitMix64's finaliser: every output bit depends on every input bit.
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// 24 random bits for (row, column); `row_mix` = mix(row key ^ mix(seed key)).
constexpr std::uint32_t counter_bits(std::uint64_t row_mix, std::int64_t column) {
  const std::uint64_t word =
      mix(row_mix + static_cast<std::uint64_t>(column) * 0x9E3779B97F4A7C15ULL);
  return static_cast<std::uint32_t>(word >> 40);
}

}  // namespace longhaul::kernels::cuda
