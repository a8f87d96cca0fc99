#include "config/exchange_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::config {
namespace {

using ::testing::ElementsAre;

TEST(ExchangeParts, TheShortOfTwoIsWhereNothingHidesIt) {
  EXPECT_THAT(exchange_parts(16384, 2, PartOrder::kLongFirst),
              ElementsAre(Range{0, 12288}, Range{12288, 16384}));
  EXPECT_THAT(exchange_parts(16384, 2, PartOrder::kShortFirst),
              ElementsAre(Range{0, 4096}, Range{4096, 16384}));
}

TEST(ExchangeParts, ShortOnesAreWholeTilesWhereThereAreSome) {
  EXPECT_THAT(exchange_parts(5000, 2, PartOrder::kShortFirst),
              ElementsAre(Range{0, 1024}, Range{1024, 5000}));
  EXPECT_THAT(exchange_parts(9, 2, PartOrder::kLongFirst), ElementsAre(Range{0, 7}, Range{7, 9}));
}

TEST(ExchangeParts, CoverTheTokensInAnyNumber) {
  for (std::int64_t tokens = 0; tokens < 40; ++tokens) {
    for (const std::int64_t parts : {1, 2, 3}) {
      for (const PartOrder order : {PartOrder::kLongFirst, PartOrder::kShortFirst}) {
        const std::vector<Range> made = exchange_parts(tokens, parts, order);
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
