// Stochastic rounding by its definition: the mean over all 65536 random numbers is the value itself.
#include "kernels/stochastic_round.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "base/dtype.h"

namespace longhaul::kernels {
namespace {

constexpr std::uint32_t kChances = 65536;

/// Patterns of all kinds: both signs, every exponent from subnormal to the largest, odd low halves.
std::vector<std::uint32_t> finite_patterns() {
  std::vector<std::uint32_t> patterns = {0x00000000, 0x00000001, 0x0000FFFF, 0x00018000, 0x007FFFFF,
                                         0x3F800001, 0x3F80FFFF, 0x3FFFFFFF, 0x7F7EFFFF};
  for (std::uint32_t exponent = 0; exponent < 255; exponent += 23) {
    const std::uint32_t mantissa = exponent * 0x9E3779B9U & 0x007EFFFFU;
    patterns.push_back(exponent << 23 | mantissa);
  }
  const std::size_t positive = patterns.size();
  for (std::size_t i = 0; i < positive; ++i) {
    patterns.push_back(patterns[i] | 0x80000000U);
  }
  return patterns;
}

TEST(StochasticRound, IsExactInTheMeanOverAllRandomNumbers) {
  for (const std::uint32_t bits : finite_patterns()) {
    double sum = 0;  // exact: 8-bit values of two neighbouring sizes
    for (std::uint32_t random = 0; random < kChances; ++random) {
      sum += static_cast<double>(base::bf16_to_float(round_stochastically(bits, random)));
    }
    EXPECT_EQ(sum / kChances, static_cast<double>(std::bit_cast<float>(bits))) << std::hex << bits;
  }
}

TEST(StochasticRound, GoesToOneOfTheTwoNeighbours) {
  for (const std::uint32_t bits : finite_patterns()) {
    for (const std::uint32_t random : {0U, 1U, 0x7FFFU, 0x8000U, 0xFFFFU}) {
      const std::uint32_t steps = round_stochastically(bits, random) - (bits >> 16);
      EXPECT_EQ(steps, (bits & 0xFFFFU) + random >= kChances ? 1U : 0U) << std::hex << bits;
    }
  }
}

TEST(StochasticRound, LeavesAloneWhatBf16Holds) {
  for (std::uint32_t half = 0; half < kChances; ++half) {
    const bool is_nan = (half & 0x7FFFU) > 0x7F80U;
    for (const std::uint32_t random : {0U, 0xFFFFU}) {
      ASSERT_EQ(round_stochastically(half << 16, random), is_nan ? half | 0x40U : half);
    }
  }
}

TEST(StochasticRound, KeepsNanWhosePayloadIsInTheLostHalf) {
  for (const std::uint32_t bits : {0x7F800001U, 0xFF80FFFFU, 0x7FBFFFFFU, 0xFFFFFFFFU}) {
    for (const std::uint32_t random : {0U, 0xFFFFU}) {
      const std::uint16_t rounded = round_stochastically(bits, random);
      EXPECT_TRUE(std::isnan(base::bf16_to_float(rounded))) << std::hex << bits;
      EXPECT_EQ(rounded >> 15, bits >> 31);
    }
  }
}

TEST(StochasticRound, NeverMakesAFiniteValueInfinite) {
  for (const std::uint32_t bits : {0x7F7F0000U, 0x7F7F0001U, 0x7F7FFFFFU}) {
    for (const std::uint32_t random : {0U, 1U, 0x8000U, 0xFFFFU}) {
      EXPECT_EQ(round_stochastically(bits, random), 0x7F7FU);
      EXPECT_EQ(round_stochastically(bits | 0x80000000U, random), 0xFF7FU);
    }
  }
}

TEST(StochasticRound, LooksAtTheLowerSixteenRandomBitsAlone) {
  for (const std::uint32_t bits : finite_patterns()) {
    EXPECT_EQ(round_stochastically(bits, 0xABCD4321U), round_stochastically(bits, 0x4321U));
  }
}

/// Published outputs of SplitMix64 from the seed 0: a resumed run must draw what the first one drew.
TEST(RoundingBits, AreThoseOfSplitMix64) {
  EXPECT_EQ(rounding_bits(0, 1), 0xE220A839U);
  EXPECT_EQ(rounding_bits(0, 2), 0x6E789E6AU);
}

/// Mean of a product of two deviations from one half, in its own standard errors.
double correlation(const std::function<double(std::int64_t)>& a,
                   const std::function<double(std::int64_t)>& b) {
  constexpr std::int64_t kCount = 1 << 16;
  double sum = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    sum += (a(i) - 0.5) * (b(i) - 0.5);
  }
  return sum * 12.0 / std::sqrt(static_cast<double>(kCount));
}

TEST(RoundingBits, OfMomentsNeighboursAndStepsAreUnrelated) {
  constexpr std::uint64_t kKey = 0x0123456789ABCDEFULL;
  const auto first = [](std::int64_t i) { return (rounding_bits(kKey, i) >> 16) / 65536.0; };
  const auto second = [](std::int64_t i) { return (rounding_bits(kKey, i) & 0xFFFFU) / 65536.0; };
  const auto neighbour = [&](std::int64_t i) { return first(i + 1); };
  const auto next_step = [](std::int64_t i) {
    return (rounding_bits(kKey + 1, i) >> 16) / 65536.0;
  };
  EXPECT_LT(std::abs(correlation(first, second)), 5);
  EXPECT_LT(std::abs(correlation(first, neighbour)), 5);
  EXPECT_LT(std::abs(correlation(first, next_step)), 5);
  const auto one = [](std::int64_t) { return 1.5; };
  // Against a constant 1 above one half: the mean deviation, in units of √12 standard errors.
  EXPECT_LT(std::abs(correlation(first, one)), 5 * std::sqrt(12.0));
  EXPECT_LT(std::abs(correlation(second, one)), 5 * std::sqrt(12.0));
}

}  // namespace
}  // namespace longhaul::kernels
