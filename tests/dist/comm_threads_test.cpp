#include "dist/comm_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "dist/comm_cases.h"
#include "dist/comm_error.h"
#include "dist/device_cases.h"

namespace longhaul::dist {
namespace {

using std::chrono::milliseconds;

TEST(ThreadRanks, DoEveryOperationForOneToFiveRanks) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    run_ranks(ranks, [](Communicator& comm) {
      for (const dist_test::CommCase& one : dist_test::comm_cases()) {
        one.run(comm);
      }
      dist_test::run_device_cases(comm, at::kCPU);
    });
  }
}

TEST(ThreadRanks, AThrowingRankEndsTheOthersAndItsOwnExceptionIsSeen) {
  std::atomic<int> told_others{0};
  try {
    run_ranks(3, [&](Communicator& comm) {
      if (comm.rank() == 1) {
        throw std::logic_error("only rank 1 knows");
      }
      try {
        comm.barrier("wait for all");
      } catch (const PeerError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("rank 1"));
        EXPECT_THAT(error.what(), testing::HasSubstr("only rank 1 knows"));
        ++told_others;
        throw;
      }
    });
    FAIL() << "run_ranks returned";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "only rank 1 knows");
  }
  EXPECT_EQ(told_others, 2);
}

TEST(ThreadRanks, ARankThatReturnsEarlyIsNamed) {
  try {
    run_ranks(2, [](Communicator& comm) {
      comm.set_step(7);
      if (comm.rank() == 0) {
        comm.barrier("wait for all");
      }
    });
    FAIL() << "run_ranks returned";
  } catch (const PeerError& error) {
    EXPECT_STREQ(
        error.what(),
        "rank 1, step 7, wait for all: ended before this operation, which rank 0 waits in");
  }
}

TEST(ThreadRanks, ARankThatComesTooLateIsNamedWithStepAndOperation) {
  try {
    run_ranks(
        3,
        [](Communicator& comm) {
          comm.set_step(12);
          if (comm.rank() == 2) {
            std::this_thread::sleep_for(milliseconds(400));
          }
          comm.barrier("gradient sum");
        },
        milliseconds(50));
    FAIL() << "run_ranks returned";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(),
                testing::StartsWith("rank 2, step 12, gradient sum: did not arrive within 0.05 s"));
  }
}

TEST(ThreadRanks, DifferentOperationsAreABugThatIsNamed) {
  try {
    run_ranks(2, [](Communicator& comm) { comm.barrier(comm.rank() == 0 ? "one" : "other"); });
    FAIL() << "run_ranks returned";
  } catch (const base::InternalError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'one'"));
    EXPECT_THAT(error.what(), testing::HasSubstr("other"));
  }
}

TEST(ThreadRanks, AbortEndsEveryRank) {
  std::atomic<int> ended{0};
  EXPECT_THROW(run_ranks(4,
                         [&](Communicator& comm) {
                           try {
                             if (comm.rank() == 3) {
                               comm.abort("no more disk");
                             }
                             comm.barrier("wait for all");
                           } catch (const base::SystemError& error) {
                             EXPECT_THAT(error.what(), testing::HasSubstr("no more disk"));
                             ++ended;
                             throw;
                           }
                         }),
               base::SystemError);
  EXPECT_EQ(ended, 4);
}

TEST(ThreadRanks, BlockSizesThatDisagreeAreABugNotGarbage) {
  EXPECT_THROW(run_ranks(2,
                         [](Communicator& comm) {
                           const std::vector<std::int64_t> send(2, 8);
                           const std::vector<std::int64_t> receive(2, comm.rank() == 0 ? 8 : 4);
                           std::vector<std::byte> from(16);
                           std::vector<std::byte> to(16);
                           comm.all_to_all("exchange", from.data(), send, to.data(), receive);
                         }),
               base::InternalError);
}

}  // namespace
}  // namespace longhaul::dist
