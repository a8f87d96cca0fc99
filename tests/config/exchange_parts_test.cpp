#include "config/exchange_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::config {
namespace {

using ::testing::ElementsAre;

/// In tiles of 256 x 128, 132 at once.
std::int64_t waves(std::int64_t rows, std::int64_t columns) {
  return ((rows + 255) / 256 * ((columns + 127) / 128) + 131) / 132;
}

TEST(ExchangeParts, TheShortOfTwoIsWhereNothingHidesIt) {
  EXPECT_THAT(exchange_parts(16384, 2, PartOrder::kLongFirst, 4608),
              ElementsAre(Range{0, 12032}, Range{12032, 16384}));
  EXPECT_THAT(exchange_parts(16384, 2, PartOrder::kShortFirst, 3584),
              ElementsAre(Range{0, 4352}, Range{4352, 16384}));
}

TEST(ExchangeParts, ShortOnesAreWholeTilesWhereThereAreSome) {
  EXPECT_THAT(exchange_parts(5000, 2, PartOrder::kShortFirst, 8),
              ElementsAre(Range{0, 1280}, Range{1280, 5000}));
  EXPECT_THAT(exchange_parts(9, 2, PartOrder::kLongFirst, 8),
              ElementsAre(Range{0, 7}, Range{7, 9}));
}

// 8,192 rows of 28 tiles are 6.8 waves; a quarter and the rest would be 1.7 and 5.1, so 8 begun
// ones instead of 7.
TEST(ExchangeParts, NeedNoMoreWavesOfTilesThanTheWhole) {
  EXPECT_THAT(exchange_parts(8192, 2, PartOrder::kShortFirst, 3584),
              ElementsAre(Range{0, 2304}, Range{2304, 8192}));
  for (const std::int64_t tokens : {4096, 8192, 16384, 32768, 65536}) {
    for (const std::int64_t columns : {3584, 4096, 4608, 5120, 6144, 10240}) {
      const std::vector<Range> made = exchange_parts(tokens, 2, PartOrder::kShortFirst, columns);
      std::int64_t sum = 0;
      for (const Range& part : made) {
        EXPECT_EQ(part.size() % 256, 0);
        sum += waves(part.size(), columns);
      }
      EXPECT_EQ(sum, waves(tokens, columns)) << tokens << " " << columns;
      EXPECT_GE(16 * made[0].size(), 3 * tokens);
      EXPECT_LE(16 * made[0].size(), 5 * tokens);
    }
  }
}

TEST(ExchangeParts, NoCutOfWholeTilesNeedsFewerWaves) {
  for (std::int64_t tokens = 4097; tokens < 40000; tokens += 1021) {
    for (const std::int64_t columns : {2048, 3584, 4608, 8192}) {
      const std::int64_t made =
          exchange_parts(tokens, 2, PartOrder::kShortFirst, columns)[0].size();
      const std::int64_t sum = waves(made, columns) + waves(tokens - made, columns);
      for (std::int64_t rows = 256; rows < tokens; rows += 256) {
        if (16 * rows >= 3 * tokens && 16 * rows <= 5 * tokens) {
          EXPECT_LE(sum, waves(rows, columns) + waves(tokens - rows, columns)) << tokens;
        }
      }
    }
  }
}

TEST(ExchangeParts, CoverTheTokensInAnyNumber) {
  for (std::int64_t tokens = 0; tokens < 40; ++tokens) {
    for (const std::int64_t parts : {1, 2, 3}) {
      for (const PartOrder order : {PartOrder::kLongFirst, PartOrder::kShortFirst}) {
        const std::vector<Range> made = exchange_parts(tokens, parts, order, 3584);
        ASSERT_EQ(made.size(), static_cast<std::size_t>(parts));
        std::int64_t next = 0;
        for (const Range& part : made) {
          EXPECT_EQ(part.begin, next);
          EXPECT_TRUE(part.size() > 0 || tokens < parts || parts == 1);
          next = part.end;
        }
        EXPECT_EQ(next, tokens);
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::config
