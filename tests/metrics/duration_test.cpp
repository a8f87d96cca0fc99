#include "metrics/duration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace longhaul::metrics {
namespace {

TEST(Duration, ReadsLikeMsSwift) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(0.999), "0s");
  EXPECT_EQ(format_duration(59.99), "59s");
  EXPECT_EQ(format_duration(60), "1m 0s");
  EXPECT_EQ(format_duration(63.4), "1m 3s");
  EXPECT_EQ(format_duration(3599), "59m 59s");
  EXPECT_EQ(format_duration(3600), "1h 0m 0s");
  EXPECT_EQ(format_duration(7205), "2h 0m 5s");
  EXPECT_EQ(format_duration(86399), "23h 59m 59s");
  EXPECT_EQ(format_duration(86400), "1d 0h 0m 0s");
  EXPECT_EQ(format_duration(12 * 86400 + 3661), "12d 1h 1m 1s");
}

TEST(Duration, ThatMakesNoSenseIsADash) {
  EXPECT_EQ(format_duration(-1), "-");
  EXPECT_EQ(format_duration(std::nan("")), "-");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(format_duration(1e300), "-");
}

TEST(Duration, ReadsBackInWholeSeconds) {
  for (const double seconds : {0.0, 1.0, 59.0, 60.0, 3601.0, 86399.0, 90061.0, 1e9}) {
    EXPECT_EQ(parse_duration(format_duration(seconds)), seconds);
  }
}

TEST(Duration, RefusesOtherTexts) {
  for (const char* text :
       {"", "-", "1", "s", "1x", "1s 2m", "1m1s", "1m  1s", "1m ", "-1s", "1m 1m",
        "99999999999999999999s", "9223372036854775807d", " 1s", "1.5s"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace longhaul::metrics
