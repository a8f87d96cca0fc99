// Stochastic rounding of fp32 to bf16, in whole numbers only, so that every instruction set and
// device gets the same bits: a value goes to one of its two neighbours, to each with the probability
// that makes the mean exact. Updates too small for bf16 are kept in the mean instead of being lost.
#pragma once

#include <cstdint>

#include "kernels/mix.h"

namespace longhaul::kernels {

/// Random bits of one element under the key of a step: the upper 16 for the first moment, the lower
/// 16 for the second. `element` counts in the flat buffer of all masters.
static constexpr std::uint32_t rounding_bits(std::uint64_t key, std::int64_t element) {
  const std::uint64_t counter = static_cast<std::uint64_t>(element) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::uint32_t>(mix(key + counter) >> 32);
}

/// The fp32 pattern `bits` as a bf16 pattern, rounded away from zero by `random` of 65536 chances
/// times what bf16 cannot hold. Infinities and zeros stay, NaN stays NaN (quiet), and a finite value
/// stays finite: beyond the largest bf16 it becomes that.
static constexpr std::uint16_t round_stochastically(std::uint32_t bits, std::uint32_t random) {
  constexpr std::uint32_t kInfinity = 0x7F800000U;
  constexpr std::uint32_t kLargest = 0x7F7F0000U;  // finite, in bf16
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t sum = magnitude + (random & 0xFFFFU);
  const std::uint32_t finite = sum < kInfinity ? sum : kLargest;
  // Of a NaN all that tells it from infinity may lie in the lost half.
  const std::uint32_t special = magnitude > kInfinity ? magnitude | 0x00400000U : kInfinity;
  const std::uint32_t rounded = magnitude < kInfinity ? finite : special;
  return static_cast<std::uint16_t>(((bits & 0x80000000U) | rounded) >> 16);
}

}  // namespace longhaul::kernels
