#include "text/length_policy.h"

#include <gtest/gtest.h>

#include <numeric>

namespace longhaul::text {
namespace {

using config::TruncationStrategy;

/// ids 1..n, every one but the first a target.
TokenizedSample sample_of(int size) {
  TokenizedSample sample;
  sample.ids.resize(static_cast<std::size_t>(size));
  std::iota(sample.ids.begin(), sample.ids.end(), 1);
  sample.labels = sample.ids;
  if (size > 0) {
    sample.labels[0] = kNoLabel;
  }
  return sample;
}

using Ids = std::vector<std::int32_t>;

TEST(LengthPolicy, SamplesThatFitAreUntouched) {
  for (const auto strategy : {TruncationStrategy::kDelete, TruncationStrategy::kLeft,
                              TruncationStrategy::kRight, TruncationStrategy::kSplit}) {
    for (const std::int64_t limit : {5, 6, 0, -1}) {
      const auto parts = apply_length_policy(sample_of(5), limit, strategy);
      ASSERT_EQ(parts.size(), 1U);
      EXPECT_EQ(parts[0].ids, sample_of(5).ids);
      EXPECT_EQ(parts[0].labels, sample_of(5).labels);
    }
  }
  EXPECT_EQ(apply_length_policy({}, 3, TruncationStrategy::kDelete).size(), 1U);
}

TEST(LengthPolicy, DeleteLeavesNothing) {
  EXPECT_TRUE(apply_length_policy(sample_of(6), 5, TruncationStrategy::kDelete).empty());
}

TEST(LengthPolicy, LeftKeepsTheEndAndRightTheBeginning) {
  const auto left = apply_length_policy(sample_of(6), 4, TruncationStrategy::kLeft);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].ids, (Ids{3, 4, 5, 6}));
  EXPECT_EQ(left[0].labels, (Ids{kNoLabel, 4, 5, 6}));
  const auto right = apply_length_policy(sample_of(6), 4, TruncationStrategy::kRight);
  ASSERT_EQ(right.size(), 1U);
  EXPECT_EQ(right[0].ids, (Ids{1, 2, 3, 4}));
  EXPECT_EQ(right[0].labels, (Ids{kNoLabel, 2, 3, 4}));
}

TEST(LengthPolicy, SplitKeepsEveryTokenOnce) {
  const auto parts = apply_length_policy(sample_of(7), 3, TruncationStrategy::kSplit);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].ids, (Ids{1, 2, 3}));
  EXPECT_EQ(parts[1].ids, (Ids{4, 5, 6}));
  EXPECT_EQ(parts[1].labels, (Ids{kNoLabel, 5, 6}));
  EXPECT_EQ(parts[2].ids, (Ids{7}));
  EXPECT_EQ(parts[2].labels, (Ids{kNoLabel}));
}

}  // namespace
}  // namespace longhaul::text
