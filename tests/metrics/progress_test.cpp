#include "metrics/progress.h"

#include <gtest/gtest.h>

#include <cmath>

#include "metrics/records.h"

namespace longhaul::metrics {
namespace {

const Progress kTypical = {.step = 12,
                           .max_steps = 100,
                           .loss = 1.23456,
                           .tokens_per_second = 5210.4,
                           .memory_gib = 3.14,
                           .elapsed_s = 63,
                           .remaining_s = 462};

TEST(ProgressLine, ShowsEverything) {
  EXPECT_EQ(progress_line(kTypical),
            "step 12/100 | loss 1.2346 | 5,210 tokens/s | 3.1 GiB | 1m 3s, ETA 7m 42s");
}

TEST(ProgressLine, LeavesOutWhatIsNotKnownYet) {
  EXPECT_EQ(progress_line({.step = 0, .max_steps = 5, .elapsed_s = 1}), "step 0/5 | 1s");
}

TEST(ProgressBar, FillsAWideTerminalWithinLimits) {
  EXPECT_EQ(
      progress_bar(kTypical, 100),
      " 12% [===>                     ] 12/100 | loss 1.2346 | 5,210 tokens/s | 3.1 GiB | 1m 3s, "
      "ETA 7m 42s");
  EXPECT_LE(progress_bar(kTypical, 1000).size(), 130U);
}

TEST(ProgressBar, NeverExceedsTheWidthAndDropsTheRightmostFirst) {
  std::size_t longest = 0;
  for (int width = 0; width <= 140; ++width) {
    const std::string bar = progress_bar(kTypical, width);
    EXPECT_LE(static_cast<int>(bar.size()), width);
    EXPECT_GE(bar.size() + 1, longest) << width;  // a bar that yields to a value may be one shorter
    longest = std::max(longest, bar.size());
    EXPECT_EQ(bar.find_first_of("\r\n\x1b"), std::string::npos);
    const bool ends_whole = bar.ends_with("12/100") || bar.ends_with("1.2346") ||
                            bar.ends_with("tokens/s") || bar.ends_with("GiB") ||
                            bar.ends_with("42s");
    EXPECT_TRUE(ends_whole || width < 11) << bar;
  }
  EXPECT_EQ(progress_bar(kTypical, 30), " 12% 12/100 | loss 1.2346");
  EXPECT_EQ(progress_bar(kTypical, -3), "");
}

TEST(ProgressBar, IsEmptyAtTheStartAndFullAtTheEnd) {
  Progress progress = {.step = 0, .max_steps = 3};
  EXPECT_EQ(progress_bar(progress, 30), "  0% [>             ] 0/3 | 0s");
  progress.step = 3;
  EXPECT_EQ(progress_bar(progress, 30), "100% [==============] 3/3 | 0s");
  progress.step = 9;  // more than promised
  EXPECT_EQ(progress_bar(progress, 30), "100% [==============] 9/3 | 0s");
  progress = {.step = 0, .max_steps = 0};
  EXPECT_EQ(progress_bar(progress, 10), "  0% 0/0");
}

TEST(Progress, ShowsStrangeNumbersAsTheyAre) {
  Progress progress = kTypical;
  progress.loss = std::nan("");
  progress.tokens_per_second = HUGE_VAL;
  progress.remaining_s = HUGE_VAL;
  EXPECT_EQ(progress_line(progress),
            "step 12/100 | loss nan | inf tokens/s | 3.1 GiB | 1m 3s, ETA -");
  progress.tokens_per_second = 12.34;
  EXPECT_NE(progress_line(progress).find("12.3 tokens/s"), std::string::npos);
}

TEST(Progress, ComesFromARecord) {
  const Progress progress = progress_of(sample_step());
  EXPECT_EQ(progress.step, 12);
  EXPECT_EQ(progress.max_steps, 100);
  EXPECT_EQ(progress.loss, sample_step().loss);
  EXPECT_EQ(progress.memory_gib, sample_step().memory_gib);
  EXPECT_EQ(progress.remaining_s, 7322);
}

TEST(WithThousands, GroupsDigitsByThree) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(1000), "1,000");
  EXPECT_EQ(with_thousands(-999), "-999");
  EXPECT_EQ(with_thousands(-123456), "-123,456");
  EXPECT_EQ(with_thousands(1234567), "1,234,567");
}

}  // namespace
}  // namespace longhaul::metrics
