#include "metrics/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <vector>

namespace longhaul::metrics {
namespace {

TEST(ProcField, ReadsKilobytesOfTheNamedLineOnly) {
  const char* text = "VmPeak:\t  99 kB\nVmHWM:\t   12345 kB\nVmHWMx: 1 kB\n";
  EXPECT_EQ(proc_field_bytes(text, "VmHWM"), 12345U * 1024U);
  EXPECT_EQ(proc_field_bytes(text, "VmRSS"), std::nullopt);
  EXPECT_EQ(proc_field_bytes(text, "Vm"), std::nullopt);
  EXPECT_EQ(proc_field_bytes("VmHWM:", "VmHWM"), std::nullopt);
  EXPECT_EQ(proc_field_bytes("VmHWM: 7 kB", "VmHWM"), 7U * 1024U);
  EXPECT_EQ(proc_field_bytes("", "VmHWM"), std::nullopt);
}

TEST(CgroupBytes, KnowsNumbersAndMax) {
  EXPECT_EQ(cgroup_bytes("4096\n"), 4096U);
  EXPECT_EQ(cgroup_bytes("max\n"), std::nullopt);
  EXPECT_EQ(cgroup_bytes(""), std::nullopt);
}

TEST(ResidentBytes, GrowWithTouchedMemoryAndThePeakStays) {
  constexpr std::size_t kBytes = 64U << 20U;
  const std::uint64_t before = resident_bytes();
  {
    std::vector<char> touched(kBytes, 1);
    EXPECT_GE(resident_bytes(), before + kBytes / 2);
    EXPECT_EQ(touched[kBytes - 1], 1);
  }
  EXPECT_GE(peak_resident_bytes(), before + kBytes / 2);
  rusage usage{};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  const auto system_peak = static_cast<double>(usage.ru_maxrss) * 1024;
  EXPECT_NEAR(static_cast<double>(peak_resident_bytes()), system_peak, 0.05 * system_peak);
}

TEST(HostMemory, IsMoreThanThisProcessUses) {
  const HostMemory memory = host_memory();
  EXPECT_GT(memory.total_bytes, resident_bytes());
  EXPECT_GT(memory.available_bytes, 0U);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace longhaul::metrics
