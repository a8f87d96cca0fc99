// The MPI transport with real processes, also with more ranks than cores.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/probe_run.h"

namespace longhaul::dist {
namespace {

class MpiRanks : public testing::TestWithParam<int> {};

TEST_P(MpiRanks, DoEveryOperation) {
  if (!dist_test::has_mpi()) {
    GTEST_SKIP() << "needs Open MPI";
  }
  const int ranks = GetParam();
  dist_test::ProbeRun run({"cases"}, {{"NPROC_PER_NODE", std::to_string(ranks)}});
  const dist_test::ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_THAT(result.out, testing::HasSubstr(fmt::format("rank {} of {}: ", rank, ranks)));
  }
}

INSTANTIATE_TEST_SUITE_P(TwoToFive, MpiRanks, testing::Values(2, 3, 5));

}  // namespace
}  // namespace longhaul::dist
