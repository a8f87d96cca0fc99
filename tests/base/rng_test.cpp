// Known answers of Philox4x32-10 are those published with the Random123 library (kat_vectors).
#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"

namespace longhaul::base {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, DependsOnItsAddressAlone) {
  const CounterRng one(42, RngPurpose::kDropout, 3);
  const CounterRng two(42, RngPurpose::kDropout, 3);
  const Words later = one.words(1'000'000);
  EXPECT_EQ(one.words(0), two.words(0));
  EXPECT_EQ(two.words(1'000'000), later);
}

TEST(CounterRng, GivesOtherNumbersForAnotherSeedPurposeStreamOrIndex) {
  std::set<Words> seen;
  for (const std::uint64_t seed : {0ULL, 1ULL, 42ULL, 1ULL << 32, 1ULL << 63}) {
    for (const RngPurpose purpose : {RngPurpose::kLoraInit, RngPurpose::kDropout,
                                     RngPurpose::kNeftune, RngPurpose::kShuffleEpoch}) {
      for (const std::uint64_t stream : {0ULL, 1ULL, 2ULL, 1ULL << 32, 1ULL << 63}) {
        for (const std::uint64_t index : {0ULL, 1ULL, 1ULL << 32, 1ULL << 63}) {
          EXPECT_TRUE(seen.insert(CounterRng(seed, purpose, stream).words(index)).second)
              << seed << ' ' << static_cast<std::uint32_t>(purpose) << ' ' << stream << ' '
              << index;
        }
      }
    }
  }
}

TEST(CounterRng, UniformStaysBelowOneAndFillsTheInterval) {
  const CounterRng rng(5, RngPurpose::kSampling);
  constexpr int kBins = 16;
  constexpr int kDraws = 64'000;
  std::array<int, kBins> bins{};
  for (int i = 0; i < kDraws; ++i) {
    const float value = rng.uniform(static_cast<std::uint64_t>(i));
    ASSERT_GE(value, 0.0F);
    ASSERT_LT(value, 1.0F);
    ++bins.at(static_cast<std::size_t>(value * kBins));
  }
  double chi_squared = 0;
  constexpr double kExpected = static_cast<double>(kDraws) / kBins;
  for (const int count : bins) {
    chi_squared += (count - kExpected) * (count - kExpected) / kExpected;
  }
  EXPECT_LT(chi_squared, 37.7);  // 99.9 % point for 15 degrees of freedom; the draw is fixed
}

TEST(CounterRng, BelowCoversExactlyItsRange) {
  const CounterRng rng(5, RngPurpose::kSampling, 1);
  for (const std::uint64_t bound : {1ULL, 2ULL, 3ULL, 7ULL}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 200; ++i) {
      seen.insert(rng.below(i, bound));
    }
    EXPECT_EQ(seen.size(), bound);
    EXPECT_EQ(*seen.rbegin(), bound - 1);
  }
  EXPECT_LT(rng.below(3, ~0ULL), ~0ULL);
  EXPECT_THROW((void)rng.below(0, 0), InternalError);
}

TEST(Permutation, HoldsEveryIndexOnce) {
  for (const std::int64_t n : {0, 1, 2, 3, 17, 1000}) {
    std::vector<std::int64_t> order = permutation(n, CounterRng(1, RngPurpose::kShuffleEpoch, 2));
    ASSERT_EQ(static_cast<std::int64_t>(order.size()), n);
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t> expected(order.size());
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(order, expected);
  }
}

TEST(Permutation, DiffersBetweenEpochsAndSeedsAndRepeatsForTheSameAddress) {
  const auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    return permutation(100, CounterRng(seed, RngPurpose::kShuffleEpoch, epoch));
  };
  EXPECT_EQ(order(42, 0), order(42, 0));
  EXPECT_NE(order(42, 0), order(42, 1));
  EXPECT_NE(order(42, 0), order(43, 0));
}

TEST(Permutation, MakesEveryOrderOfThreeAboutEquallyOften) {
  std::map<std::vector<std::int64_t>, int> count;
  constexpr int kDraws = 6000;
  for (std::uint64_t stream = 0; stream < kDraws; ++stream) {
    ++count[permutation(3, CounterRng(9, RngPurpose::kShuffleData, stream))];
  }
  ASSERT_EQ(count.size(), 6U);
  for (const auto& [order, times] : count) {
    EXPECT_NEAR(times, kDraws / 6, 120);
  }
}

}  // namespace
}  // namespace longhaul::base
