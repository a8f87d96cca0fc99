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

TEST(Device, CountsThreadsOfACpuRank) {
  const plan::DeviceFacts one = plan::cpu_device(1, 1000);
  const plan::DeviceFacts four = plan::cpu_device(4, 1000);
  EXPECT_TRUE(one.is_cpu);
  EXPECT_DOUBLE_EQ(four.flops_per_s, 4 * one.flops_per_s);
}

}  // namespace
}  // namespace longhaul
