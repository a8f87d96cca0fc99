#include "ops/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace longhaul::ops {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

/// A block whose bytes are all written.
void* filled(BlockPool& pool, std::int64_t bytes) {
  void* data = pool.allocate(static_cast<std::size_t>(bytes));
  std::memset(data, 0x5a, static_cast<std::size_t>(bytes));
  return data;
}

TEST(BlockPool, AlignsBlocksOfEverySize) {
  BlockPool pool;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{63}, std::int64_t{4096}, kMiB - 65,
                                   kMiB - 64, kMiB - 63, kMiB, 3 * kMiB + 1}) {
    void* data = filled(pool, bytes);
    EXPECT_EQ(address(data) % BlockPool::kAlignment, 0U) << bytes;
    EXPECT_GE(pool.counts().live, bytes);
    EXPECT_LE(pool.counts().live, bytes + 64 + 4096);
    pool.release(data);
    EXPECT_EQ(pool.counts().live, 0) << bytes;
  }
}

TEST(BlockPool, GivesAFreedBlockToTheNextRequestOfAboutThatSize) {
  BlockPool pool;
  void* a = filled(pool, 16 * kMiB);
  pool.release(a);
  EXPECT_GE(pool.counts().free, 16 * kMiB);
  void* b = filled(pool, 15 * kMiB);
  EXPECT_EQ(b, a);
  EXPECT_EQ(pool.counts().free, 0);
  pool.release(b);
  void* much_smaller = filled(pool, 8 * kMiB);
  EXPECT_NE(much_smaller, a);
  pool.release(much_smaller);
}

TEST(BlockPool, PrefersTheClosestSize) {
  BlockPool pool;
  void* large = filled(pool, 17 * kMiB);
  void* close = filled(pool, 16 * kMiB);
  pool.release(large);
  pool.release(close);
  EXPECT_EQ(filled(pool, 16 * kMiB), close);
  pool.release(close);
}

TEST(BlockPool, HoldsNoMoreThanEverLivedAtOncePlusTheSlack) {
  BlockPool pool;
  std::int64_t most = 0;
  for (std::int64_t size = 40 * kMiB; size < 160 * kMiB; size += 20 * kMiB) {
    void* data = filled(pool, size);
    most = size + 8192;
    const BlockPool::Counts counts = pool.counts();
    EXPECT_LE(counts.live + counts.free, most + BlockPool::kSlackBytes);
    pool.release(data);
  }
  // Many sizes one after the other: the free ones make room.
  for (int i = 0; i < 30; ++i) {
    void* data = filled(pool, 20 * kMiB + i * 3 * kMiB);
    const BlockPool::Counts counts = pool.counts();
    EXPECT_LE(counts.live + counts.free, most + BlockPool::kSlackBytes);
    pool.release(data);
  }
}

TEST(BlockPool, SaysWhenTheMachineHasNoMore) {
  BlockPool pool;
  EXPECT_EQ(pool.allocate(std::size_t{1} << 50), nullptr);
  EXPECT_EQ(pool.counts().live, 0);
}

TEST(BlockPool, KeepsPeakUntilReset) {
  BlockPool pool;
  void* a = filled(pool, 4 * kMiB);
  void* b = filled(pool, 100);
  const std::int64_t peak = pool.counts().live;
  pool.release(a);
  EXPECT_EQ(pool.counts().peak, peak);
  pool.reset_peak();
  EXPECT_EQ(pool.counts().peak, pool.counts().live);
  pool.release(b);
  pool.release(nullptr);
}

TEST(BlockPool, ServesThreadsTogether) {
  BlockPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int round = 0; round < 200; ++round) {
        const std::size_t bytes = kMiB / 2 + static_cast<std::size_t>(round % 7) * kMiB / 4;
        auto* data = static_cast<unsigned char*>(pool.allocate(bytes));
        std::memset(data, t, bytes);
        for (std::size_t i = 0; i < bytes; i += 4099) {
          ASSERT_EQ(data[i], t);
        }
        pool.release(data);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(pool.counts().live, 0);
}

}  // namespace
}  // namespace longhaul::ops
