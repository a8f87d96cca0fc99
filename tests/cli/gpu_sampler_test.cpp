#include "cli/gpu_sampler.h"

#include <gtest/gtest.h>

#include <atomic>

namespace longhaul::cli {
namespace {

TEST(GpuSamples, AreMeansAndTheMostMemory) {
  GpuSamples samples;
  samples.add({.sm_clock_mhz = 1000, .power_w = 300, .used_bytes = 50});
  samples.add({.sm_clock_mhz = 1600, .power_w = 600, .used_bytes = 70});
  samples.add({.sm_clock_mhz = 1900, .power_w = 600, .used_bytes = 60});
  EXPECT_EQ(samples.count, 3);
  EXPECT_DOUBLE_EQ(samples.mean_sm_clock_mhz, 1500);
  EXPECT_DOUBLE_EQ(samples.mean_power_w, 500);
  EXPECT_EQ(samples.most_used_bytes, 70);
}

TEST(GpuSampler, ReadsBetweenStartAndStopAndStartsAnew) {
  std::atomic<int> reads = 0;
  GpuSampler sampler([&]() -> std::optional<GpuReading> {
    ++reads;
    return GpuReading{.sm_clock_mhz = 1500, .power_w = 700, .used_bytes = 1 << 20};
  });
  EXPECT_FALSE(sampler.stop());
  for (int round = 0; round < 2; ++round) {
    reads = 0;
    sampler.start();
    while (reads < 2) {  // the first at once, the second an interval later
      std::this_thread::yield();
    }
    const auto seen = sampler.stop();
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->count, reads);
    EXPECT_DOUBLE_EQ(seen->mean_power_w, 700);
  }
}

TEST(GpuSampler, WithoutAGpuSeesNothing) {
  EXPECT_FALSE(gpu_reader(""));
  EXPECT_FALSE(gpu_reader("ffff:ff:1f.7"));
  GpuSampler none(nullptr);
  none.start();
  EXPECT_FALSE(none.stop());
  GpuSampler failing([]() -> std::optional<GpuReading> { return std::nullopt; });
  failing.start();
  EXPECT_FALSE(failing.stop());
}

}  // namespace
}  // namespace longhaul::cli
