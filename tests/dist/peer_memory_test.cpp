// Buffers that ranks write into one another's memory: every byte arrives, nothing is overwritten before it was read.
#include "dist/peer_memory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dist/comm_error.h"
#include "dist/comm_threads.h"

namespace longhaul::dist {
namespace {

std::byte mark(int from, int to, int round) {
  return static_cast<std::byte>(64 * round + 8 * from + to);
}

TEST(PeerMemory, EveryRanksBytesArriveRoundAfterRound) {
  constexpr int kRanks = 3;
  constexpr std::int64_t kBlock = 100;
  run_ranks(kRanks, [&](Communicator& comm) {
    const auto memory = comm.make_peer_memory(kRanks * kBlock);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(memory->bytes(), kRanks * kBlock);
    constexpr int kParts = 2;
    for (int round = 0; round < 4; ++round) {
      memory->open("exchange", kParts);
      for (std::int64_t part = 0; part < kParts; ++part) {
        for (int to = 0; to < kRanks; ++to) {
          std::memset(memory->of(to) + comm.rank() * kBlock + part * kBlock / kParts,
                      static_cast<int>(mark(comm.rank(), to, round)), kBlock / kParts);
        }
        memory->deliver((kRanks - 1) * kBlock / kParts);
      }
      if (comm.rank() == 1) {  // reads late: the others must not write the next round before
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      for (std::int64_t part = 0; part < kParts; ++part) {
        memory->await("exchange");
        for (int from = 0; from < kRanks; ++from) {
          for (std::int64_t i = part * kBlock / kParts; i < (part + 1) * kBlock / kParts; ++i) {
            ASSERT_EQ(memory->of(comm.rank())[from * kBlock + i], mark(from, comm.rank(), round));
          }
        }
      }
      memory->taken();
    }
    EXPECT_EQ(comm.counters().exchange_bytes, 4 * (kRanks - 1) * kBlock);
    EXPECT_EQ(comm.counters().num_exchanges, 4);
    EXPECT_GT(comm.counters().exchange_s, 0);
  });
}

TEST(PeerMemory, ARankThatLeavesEndsTheOthersWait) {
  const auto leave_early = [](Communicator& comm) {
    const auto memory = comm.make_peer_memory(8);
    if (comm.rank() == 0) {
      memory->open("exchange", 1);
    }
  };
  EXPECT_THROW(run_ranks(2, leave_early), PeerError);
}

TEST(PeerMemory, CallsOutOfOrderAreABug) {
  run_ranks(2, [](Communicator& comm) {
    const auto memory = comm.make_peer_memory(8);
    EXPECT_THROW(memory->deliver(1), base::InternalError);
    EXPECT_THROW(memory->taken(), base::InternalError);
    memory->open("exchange", 2);
    memory->deliver(1);
    EXPECT_THROW(memory->await("exchange"), base::InternalError);
    EXPECT_THROW(memory->open("exchange", 1), base::InternalError);
    memory->deliver(1);
    memory->await("exchange");
    EXPECT_THROW(memory->taken(), base::InternalError);
    memory->await("exchange");
    memory->taken();
  });
}

TEST(PeerMemory, IsAbsentWhereTheTransportHasNone) {
  EXPECT_EQ(make_single()->make_peer_memory(8), nullptr);
}

}  // namespace
}  // namespace longhaul::dist
