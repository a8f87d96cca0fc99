// What the primitive under the MPI collectives says when a transfer cannot be finished; the transfers themselves are
// covered by the collectives' tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/probe_run.h"

namespace longhaul::dist {
namespace {

TEST(MpiTransfer, NamesTheLateRankAmongThree) {
  if (!dist_test::has_mpi()) {
    GTEST_SKIP() << "needs Open MPI";
  }
  dist_test::ProbeRun run({"train", "how=sleep", "who=2", "at=2", "deadline=1500"},
                          {{"NPROC_PER_NODE", "3"}});
  const dist_test::ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(dist_test::error_lines(result.err),
              testing::ElementsAre(
                  testing::StartsWith("rank 2, step 2, sum of gradients: did not arrive")));
}

}  // namespace
}  // namespace longhaul::dist
