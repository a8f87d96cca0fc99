#include "ops/memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"

namespace longhaul::ops {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    install_counting_allocator();
    at::ones({1});  // what libtorch allocates once
    reset_host_memory_peak();
  }
};

TEST_F(Memory, CountsWhatLivesAndForgetsWhatIsFreed) {
  const std::int64_t before = host_memory().current_bytes;
  {
    const at::Tensor a = at::empty({3 * kMiB / 4});
    const std::int64_t with_a = host_memory().current_bytes;
    EXPECT_GE(with_a - before, 3 * kMiB);
    EXPECT_LE(with_a - before, 3 * kMiB + 4096);
    const at::Tensor view = a.narrow(0, 0, 10);
    EXPECT_EQ(host_memory().current_bytes, with_a);
  }
  EXPECT_EQ(host_memory().current_bytes, before);
}

TEST_F(Memory, RemembersThePeakUntilItIsReset) {
  const std::int64_t before = host_memory().current_bytes;
  EXPECT_EQ(host_memory().peak_bytes, before);
  const at::Tensor kept = at::empty({kMiB}, at::kByte);
  { const at::Tensor large = at::empty({5 * kMiB}, at::kByte); }
  EXPECT_GE(host_memory().peak_bytes - before, 6 * kMiB);
  EXPECT_LE(host_memory().peak_bytes - before, 6 * kMiB + 8192);
  reset_host_memory_peak();
  EXPECT_EQ(host_memory().peak_bytes, host_memory().current_bytes);
  EXPECT_GE(host_memory().peak_bytes - before, kMiB);
}

TEST_F(Memory, CountsEveryThreadsTensors) {
  const std::int64_t before = host_memory().current_bytes;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 50; ++round) {
        const at::Tensor tensor = at::empty({10000 + round});
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(host_memory().current_bytes, before);
}

TEST_F(Memory, GivesAlignedBlocksAndNothingForEmptyTensors) {
  const at::Tensor tensor = at::empty({7});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0U);
  const std::int64_t before = host_memory().current_bytes;
  const at::Tensor empty = at::empty({0, 5});
  EXPECT_EQ(host_memory().current_bytes, before);
}

TEST_F(Memory, InstallingTwiceCountsOnce) {
  install_counting_allocator();
  const std::int64_t before = host_memory().current_bytes;
  const at::Tensor tensor = at::empty({kMiB}, at::kByte);
  EXPECT_LE(host_memory().current_bytes - before, kMiB + 4096);
}

TEST_F(Memory, AnImpossibleAllocationIsAProblemOfTheMachine) {
  const std::int64_t before = host_memory().current_bytes;
  try {
    const at::Tensor tensor = at::empty({std::int64_t{1} << 50}, at::kByte);
    FAIL() << "a petabyte was allocated";
  } catch (const base::SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("longhaul plan"), std::string::npos);
  }
  EXPECT_EQ(host_memory().current_bytes, before);
}

}  // namespace
}  // namespace longhaul::ops
