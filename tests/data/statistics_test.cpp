#include "data/statistics.h"

#include <fmt/format.h>

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

TEST(LengthStatistics, UsesNearestRanks) {
  const TempFolder folder;
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 100; i >= 1; --i) {
    lengths.push_back(i);
  }
  const LengthStatistics numbers = length_statistics(store_of_lengths(folder.path(), lengths));
  EXPECT_EQ(numbers.samples, 100);
  EXPECT_EQ(numbers.tokens, 5050);
  EXPECT_EQ(numbers.targets, 4950);
  EXPECT_EQ(numbers.shortest, 1);
  EXPECT_EQ(numbers.quartile1, 25);
  EXPECT_EQ(numbers.median, 50);
  EXPECT_EQ(numbers.quartile3, 75);
  EXPECT_EQ(numbers.percentile95, 95);
  EXPECT_EQ(numbers.longest, 100);
}

TEST(PackStatistics, TellsHowFullRowsAre) {
  const TempFolder folder;
  const std::vector<std::int64_t> lengths = {6, 4, 3, 2};
  const TokenStore store = store_of_lengths(folder.path(), lengths);
  const auto rows = pack_samples(lengths, 10, config::PackingStrategy::kBinpack);
  const PackStatistics numbers = pack_statistics(store, rows, 10);
  EXPECT_EQ(numbers.rows, 2);
  EXPECT_DOUBLE_EQ(numbers.fill, 0.75);
  EXPECT_DOUBLE_EQ(numbers.lowest_fill, 0.5);
  EXPECT_EQ(numbers.fewest_samples, 2);
  EXPECT_THAT(
      statistics_lines(numbers)[0],
      testing::StartsWith("packs: 2 rows of at most 10 tokens, 75.0 % full (emptiest 50.0 %)"));
}

TEST(SampleLines, ShowRunsOfInputAndTarget) {
  const TempFolder folder;
  const TokenStore store =
      store_of_lengths(folder.path(), {6}, [](auto, auto k) { return k >= 2 && k < 5; });
  const auto decode = [](const std::vector<std::int32_t>& ids) {
    return fmt::format("{}\n", fmt::join(ids, " "));
  };
  EXPECT_THAT(sample_lines(store, 0, decode),
              testing::ElementsAre("sample 0 (made.jsonl:1): 6 tokens, 3 targets",
                                   "  input        2 tokens  \"0 1\\n\"",
                                   "  target       3 tokens  \"2 3 4\\n\"",
                                   "  input        1 tokens  \"5\\n\""));
}

TEST(SampleLines, ShortenLongRuns) {
  const TempFolder folder;
  const TokenStore store = store_of_lengths(folder.path(), {500}, [](auto, auto) { return false; });
  const auto lines = sample_lines(store, 0, [](const std::vector<std::int32_t>& ids) {
    return std::to_string(ids.front()) + "-" + std::to_string(ids.back());
  });
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1], "  input      500 tokens  \"0-59\" … 380 tokens … \"440-499\"");
}

}  // namespace
}  // namespace longhaul::data
