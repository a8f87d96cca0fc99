#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "metrics/curves.h"

namespace longhaul::metrics {
namespace {

TEST(NiceTicks, AreRoundAndInside) {
  EXPECT_EQ(nice_ticks(0, 10, 6), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(nice_ticks(0, 100, 6), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(nice_ticks(-1, 1, 5), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(nice_ticks(3, 3, 5), (std::vector<double>{3}));
  EXPECT_EQ(nice_ticks(0, 5e-324, 5), (std::vector<double>{0}));
  EXPECT_LE(nice_ticks(5e15, 5e15 + 1, 9).size(), 9U);
  for (const double high : {1e-9, 0.3, 7.0, 99.0, 1e12}) {
    const std::vector<double> ticks = nice_ticks(high / 7, high, 8);
    EXPECT_GE(ticks.size(), 2U);
    EXPECT_LE(ticks.size(), 8U);
    EXPECT_GE(ticks.front(), high / 7 * (1 - 1e-6));
    EXPECT_LE(ticks.back(), high * (1 + 1e-6));
  }
}

TEST(TickLabels, UseAsFewDigitsAsTellThemApart) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(tick_labels({0, 1, 2}), (Texts{"0", "1", "2"}));
  EXPECT_EQ(tick_labels({0, 0.5, 1}), (Texts{"0", "0.5", "1.0"}));
  EXPECT_EQ(tick_labels({2.25, 2.5}), (Texts{"2.25", "2.50"}));
  EXPECT_EQ(tick_labels({0, 2e-5, 4e-5}), (Texts{"0", "2e-5", "4e-5"}));
  EXPECT_EQ(tick_labels({1e-4, 1.5e-4}), (Texts{"1.0e-4", "1.5e-4"}));
  EXPECT_EQ(tick_labels({-1, 1}), (Texts{"-1", "1"}));
  EXPECT_EQ(tick_labels({1e6, 2e6}), (Texts{"1e6", "2e6"}));
  EXPECT_EQ(tick_labels({}), Texts{});
}

TEST(Smoothed, AveragesAroundEachPointAndKeepsStraightLines) {
  const std::vector<CurvePoint> line = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}};
  for (std::size_t i = 0; i < line.size(); ++i) {
    EXPECT_NEAR(smoothed(line, 2)[i].value, line[i].value, 1e-12);
  }
  EXPECT_FALSE(is_noisy(line, smoothed(line, 2)));
  const std::vector<CurvePoint> zigzag = {{1, 0}, {2, 4}, {3, 0}, {4, 4}, {5, 0}};
  const auto average = smoothed(zigzag, 1);
  EXPECT_EQ(average[0].value, 0);  // the ends stay
  EXPECT_EQ(average[1].value, 2);  // (0 + 2·4 + 0) / 4
  EXPECT_EQ(average[2].value, 2);
  EXPECT_TRUE(is_noisy(zigzag, average));
}

TEST(Smoothed, SkipsValuesThatAreNotFinite) {
  const std::vector<CurvePoint> points = {{1, 1}, {2, std::nan("")}, {3, 3}, {4, 3}, {5, 3}};
  const auto average = smoothed(points, 1);
  EXPECT_TRUE(std::isnan(average[1].value));
  EXPECT_EQ(average[2].value, 3);
}

}  // namespace
}  // namespace longhaul::metrics
