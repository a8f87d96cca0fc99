#include "data/packer.h"

#include <chrono>
#include <map>
#include <random>
#include <set>

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

using config::PackingStrategy;

/// The textbook algorithm in O(n²): the oracle for the number of rows.
std::int64_t first_fit_decreasing_rows(std::vector<std::int64_t> lengths, std::int64_t capacity) {
  std::sort(lengths.rbegin(), lengths.rend());
  std::vector<std::int64_t> space;
  for (const std::int64_t length : lengths) {
    auto row = std::find_if(space.begin(), space.end(), [length](auto s) { return s >= length; });
    if (row == space.end()) {
      space.push_back(capacity);
      row = space.end() - 1;
    }
    *row -= length;
  }
  return static_cast<std::int64_t>(space.size());
}

/// Every sample once, whole, in rows within capacity, in the promised order.
void expect_valid(const PackedRows& rows, const std::vector<std::int64_t>& lengths,
                  std::int64_t capacity) {
  std::vector<int> seen(lengths.size());
  std::int64_t last_first = -1;
  for (std::int64_t r = 0; r < rows.num_rows(); ++r) {
    const auto row = rows.row(r);
    ASSERT_FALSE(row.empty());
    EXPECT_GT(row.front(), last_first);
    last_first = row.front();
    EXPECT_TRUE(std::is_sorted(row.begin(), row.end()));
    std::int64_t tokens = 0;
    for (const std::int64_t sample : row) {
      ++seen[static_cast<std::size_t>(sample)];
      tokens += lengths[static_cast<std::size_t>(sample)];
    }
    EXPECT_LE(tokens, capacity);
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
}

TEST(Pack, HoldsEverySampleOnceWithinCapacityAndUsesNoMoreRowsThanFirstFitDecreasing) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t capacity = 1 + static_cast<std::int64_t>(random() % 200);
    std::vector<std::int64_t> lengths(random() % 120);
    for (std::int64_t& length : lengths) {
      const auto limit = round % 3 == 0 ? std::max<std::int64_t>(1, capacity / 3) : capacity;
      length = 1 + static_cast<std::int64_t>(random()) % limit;
    }
    const PackedRows packed = pack_samples(lengths, capacity, PackingStrategy::kBinpack);
    expect_valid(packed, lengths, capacity);
    EXPECT_LE(packed.num_rows(), first_fit_decreasing_rows(lengths, capacity));
    expect_valid(pack_samples(lengths, capacity, PackingStrategy::kSequential), lengths, capacity);
  }
}

TEST(Pack, FindsTheOneTightPackingOfAKnownCase) {
  const std::vector<std::int64_t> lengths = {1, 6, 3, 7, 4, 9};
  const PackedRows rows = pack_samples(lengths, 10, PackingStrategy::kBinpack);
  ASSERT_EQ(rows.num_rows(), 3);
  EXPECT_THAT(rows.row(0), testing::ElementsAre(0, 5));
  EXPECT_THAT(rows.row(1), testing::ElementsAre(1, 4));
  EXPECT_THAT(rows.row(2), testing::ElementsAre(2, 3));
}

TEST(Pack, SequentialKeepsFileOrder) {
  const std::vector<std::int64_t> lengths = {4, 6, 1, 10, 5, 5, 1};
  const PackedRows rows = pack_samples(lengths, 10, PackingStrategy::kSequential);
  EXPECT_THAT(rows.samples, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(rows.starts, testing::ElementsAre(0, 2, 3, 4, 6, 7));
}

TEST(Pack, TakesSamplesAsLongAsTheRowAndNoSamplesAtAll) {
  for (const auto strategy : {PackingStrategy::kBinpack, PackingStrategy::kSequential}) {
    const std::vector<std::int64_t> full = {5, 5, 5};
    EXPECT_EQ(pack_samples(full, 5, strategy).num_rows(), 3);
    EXPECT_EQ(pack_samples({}, 5, strategy).num_rows(), 0);
    const std::vector<std::int64_t> one = {1};
    EXPECT_EQ(pack_samples(one, 1, strategy).num_rows(), 1);
  }
}

TEST(Pack, RefusesASampleThatFitsNowhere) {
  const std::vector<std::int64_t> lengths = {6};
  EXPECT_THROW(pack_samples(lengths, 5, PackingStrategy::kBinpack), base::InternalError);
}

TEST(Pack, PacksAMillionSamplesInSeconds) {
  std::mt19937 random(5);
  std::vector<std::int64_t> lengths(1000000);
  for (std::int64_t& length : lengths) {
    length = 1 + static_cast<std::int64_t>(random() % 8192);
  }
  const auto start = std::chrono::steady_clock::now();
  const PackedRows rows = pack_samples(lengths, 32768, PackingStrategy::kBinpack);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 60);  // a quadratic packer would take hours
  const auto tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  EXPECT_LE(rows.num_rows(), tokens / 32768 + tokens / 32768 / 1000);
}

TEST(SingleSamples, MakesEverySampleARow) {
  const PackedRows rows = single_samples(3);
  EXPECT_EQ(rows.num_rows(), 3);
  EXPECT_THAT(rows.row(2), testing::ElementsAre(2));
  EXPECT_EQ(single_samples(0).num_rows(), 0);
}

}  // namespace
}  // namespace longhaul::data
