#include "plan/device.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(Device, KnowsCommonDevicesByName) {
  ASSERT_TRUE(plan::find_device("h200"));
  EXPECT_EQ(plan::find_device("h200")->memory_bytes, 141'000'000'000);
  EXPECT_EQ(plan::find_device("a100-40")->memory_bytes, 40'000'000'000);
  EXPECT_FALSE(plan::find_device("h201"));
  EXPECT_NE(plan::device_names().find("a100-40"), std::string::npos);
}

TEST(Device, KnowsPeaksByTheDriversNames) {
  EXPECT_NEAR(plan::peak_flops_of("NVIDIA H200").value_or(0), 989e12, 1e6);
  EXPECT_NEAR(plan::peak_flops_of("NVIDIA A100-SXM4-40GB").value_or(0), 312e12, 1e6);
  EXPECT_FALSE(plan::peak_flops_of("NVIDIA H200 NVL"));  // slower than the module
  EXPECT_FALSE(plan::peak_flops_of("CPU"));
}

TEST(Device, ScalesMeasuredRatesByDataSheets) {
  const plan::DeviceFacts h200 = *plan::find_device("h200");
  EXPECT_TRUE(h200.is_measured);
  EXPECT_DOUBLE_EQ(h200.rates.product_flops_per_s, plan::DeviceRates{}.product_flops_per_s);
  EXPECT_DOUBLE_EQ(h200.rates.memory_bytes_per_s, plan::DeviceRates{}.memory_bytes_per_s);
  const plan::DeviceFacts a100 = *plan::device_of_driver("NVIDIA A100-SXM4-40GB");
  EXPECT_FALSE(a100.is_measured);
  EXPECT_NEAR(a100.rates.product_flops_per_s, 678e12 * 312 / 989, 1e6);
  EXPECT_NEAR(a100.rates.memory_bytes_per_s, 4.06e12 * 1.56 / 4.8, 1e6);
  EXPECT_NEAR(a100.rates.to_host_bytes_per_s, 26e9, 1);
  EXPECT_FALSE(plan::device_of_driver("CPU"));
}

TEST(Device, ExchangesTakeWhatWasMeasuredAndMoreForMore) {
  const plan::DeviceRates rates;
  constexpr double kMiB = 1048576;
  EXPECT_NEAR(64 * kMiB / plan::exchange_seconds(rates, 64 * kMiB), 168e9, 1e3);
  EXPECT_NEAR(1024 * kMiB / plan::exchange_seconds(rates, 1024 * kMiB), 309e9, 1e3);
  EXPECT_NEAR(plan::exchange_seconds(rates, 0), 85e-6, 1e-12);
  double before = 0;
  for (double bytes = 1; bytes < 1e11; bytes *= 3) {
    EXPECT_GT(plan::exchange_seconds(rates, bytes), before);
    before = plan::exchange_seconds(rates, bytes);
  }
  plan::DeviceRates slow;
  slow.link_scale = 0.1;
  EXPECT_NEAR(plan::exchange_seconds(slow, 1e9) - 85e-6,
              10 * (plan::exchange_seconds(rates, 1e9) - 85e-6), 1e-9);
}

TEST(Device, LeavesRoomForWhatTensorsAreNot) {
  // An H200 has 150.75e9 bytes; runs there have planned with 141.9e9.
  EXPECT_NEAR(static_cast<double>(plan::plannable_bytes(150'754'820'096, 0)), 141.9e9, 0.1e9);
  EXPECT_EQ(plan::plannable_bytes(20'000'000'000, 2), (20'000'000'000 - 3'400'000'000) / 20 * 19);
  EXPECT_EQ(plan::plannable_bytes(1'000'000'000, 0), 0);
}

TEST(Device, CountsThreadsOfACpuRank) {
  const plan::DeviceFacts one = plan::cpu_device(1, 1000);
  const plan::DeviceFacts four = plan::cpu_device(4, 1000);
  EXPECT_TRUE(one.is_cpu);
  EXPECT_DOUBLE_EQ(four.flops_per_s, 4 * one.flops_per_s);
}

}  // namespace
}  // namespace longhaul
