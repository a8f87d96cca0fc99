// The mixer behind every random number that kernels draw: one definition for all instruction sets
// and devices, or a run could not move between them.
#pragma once

#include <cmath>
#include <cstdint>

namespace longhaul::kernels {

/// A cheap 64-bit mixer (SplitMix64's finaliser): every output bit depends on every input bit.
/// Internal linkage: each instruction set's build keeps code of its own.
static constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// The two columns 2·pair and 2·pair + 1 of a row; `row_mix` = mix(row key ^ mix(seed key)). On a GPU half the
/// instructions of mix(): a shift by 32 is none. (Degski's mixer; rows, columns and their neighbours at any distance
/// that masks have are as uncorrelated as with mix().)
static constexpr std::uint64_t pair_word(std::uint64_t row_mix, std::int64_t pair) {
  std::uint64_t z = row_mix + static_cast<std::uint64_t>(pair) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 32)) * 0xD6E8FEB86659FD93ULL;
  z = (z ^ (z >> 32)) * 0xD6E8FEB86659FD93ULL;
  return z ^ (z >> 32);
}

/// 24 random bits for a column, of its pair's word.
static constexpr std::uint32_t column_bits(std::uint64_t word, std::int64_t column) {
  return static_cast<std::uint32_t>((column & 1) == 0 ? word : word >> 32) >> 8;
}

/// Columns are kept from these bits on: bits · 2⁻²⁴ ≥ probability, without rounding.
static inline std::uint32_t first_kept(float probability) {
  return static_cast<std::uint32_t>(std::ceil(static_cast<double>(probability) * 0x1.0p24));
}

}  // namespace longhaul::kernels
