#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/error.h"
#include "dist/comm_cases.h"
#include "dist/communicator.h"
#include "dist/device_cases.h"
#include "ops/backend.h"

namespace longhaul::dist {
namespace {

TEST(SingleRank, CopiesItsOwnBlockAndSendsNothing) {
  const auto comm = make_single();
  const std::array<std::int64_t, 1> bytes{12};
  const std::array<float, 3> sent{1, 2, 3};
  std::array<float, 3> received{};
  comm->all_to_all("exchange", sent.data(), bytes, received.data(), bytes);
  EXPECT_EQ(received, sent);
  received = {};
  comm->all_gather("gather", sent.data(), 12, received.data(), bytes);
  EXPECT_EQ(received, sent);
  received = {};
  const std::array<std::int64_t, 1> elements{3};
  comm->reduce_scatter_sum("scatter", sent, received, elements);
  EXPECT_EQ(received, sent);
  comm->all_reduce_sum("sum", std::span<float>(received));
  EXPECT_EQ(received, sent);
  EXPECT_EQ(comm->counters().exchange_bytes, 0);
}

TEST(SingleRank, DoesEveryOperation) {
  const auto comm = make_single();
  for (const dist_test::CommCase& one : dist_test::comm_cases()) {
    one.run(*comm);
  }
  dist_test::run_device_cases(*comm, at::kCPU);
}

int num_gpu_copies = 0;  // NOLINT: counted by a function without a state of its own

TEST(SingleRank, LeavesCopiesToTheGpuWhenThereIsOne) {
  ops::register_backend(at::kCUDA,
                        {.copy_bytes = [](void* to, const void* from, std::int64_t bytes) {
                          ++num_gpu_copies;
                          std::memmove(to, from, static_cast<std::size_t>(bytes));
                        }});
  const auto comm = make_single();
  const std::array<std::int64_t, 1> bytes{12};
  const std::array<std::int64_t, 1> elements{3};
  const std::array<float, 3> sent{1, 2, 3};
  std::array<float, 3> received{};
  comm->all_to_all("exchange", sent.data(), bytes, received.data(), bytes);
  comm->all_gather("gather", sent.data(), 12, received.data(), bytes);
  comm->reduce_scatter_sum("scatter", sent, received, elements);
  EXPECT_EQ(num_gpu_copies, 3);
  EXPECT_EQ(received, sent);
}

TEST(SingleRank, SplitsIntoItselfAndKeepsStepAndDeadline) {
  const auto comm = make_single();
  comm->set_step(7);
  comm->set_deadline(std::chrono::milliseconds(1234));
  const auto group = comm->split(3);
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->step(), 7);
  EXPECT_EQ(group->deadline().count(), 1234);
}

TEST(SingleRank, RefusesBlocksThatDoNotMatch) {
  const auto comm = make_single();
  const std::array<std::int64_t, 1> four{4};
  const std::array<std::int64_t, 1> eight{8};
  std::array<std::byte, 8> memory{};
  EXPECT_THROW(comm->all_to_all("exchange", memory.data(), four, memory.data(), eight),
               base::InternalError);
}

TEST(SingleRank, AbortNamesRankStepAndReason) {
  const auto comm = make_single();
  comm->set_step(4);
  try {
    comm->abort("disk is full");
    FAIL() << "abort returned";
  } catch (const base::SystemError& error) {
    EXPECT_STREQ(error.what(), "rank 0, step 4, abort: disk is full");
  }
}

}  // namespace
}  // namespace longhaul::dist
