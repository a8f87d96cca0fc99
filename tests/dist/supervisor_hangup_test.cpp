// The launcher and a closed terminal, with real processes: SIGHUP comes more than once, or not at all under nohup.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "dist/probe_run.h"

namespace longhaul::dist {
namespace {

using dist_test::ProbeResult;
using dist_test::ProbeRun;
using std::chrono::seconds;
using testing::HasSubstr;

class LauncherHangup : public testing::Test {
 protected:
  void SetUp() override {
    if (!dist_test::has_mpi()) {
      GTEST_SKIP() << "needs Open MPI";
    }
  }
};

TEST_F(LauncherHangup, TakesSeveralHangupsAsOneWish) {
  ProbeRun run({"train", "ms=1000"}, {{"NPROC_PER_NODE", "2"}});
  ASSERT_TRUE(run.shows("step 1\n"));
  run.send(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  run.send(SIGHUP);
  const ProbeResult result = run.wait(seconds(30));
  EXPECT_EQ(result.status, 129);
  EXPECT_THAT(result.out, HasSubstr("rank 1 checkpoint"));
}

TEST_F(LauncherHangup, TrainsOnAfterAHangupThatNohupIgnores) {
  ProbeRun run({"train", "ms=50"}, {{"NPROC_PER_NODE", "2"}}, {"/usr/bin/nohup"});
  ASSERT_TRUE(run.shows("step 2\n"));
  run.send_to_group(SIGHUP);
  run.send_to_rank(1, SIGHUP);
  EXPECT_TRUE(run.shows("step 12\n"));
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(seconds(30)).status, 143);
}

}  // namespace
}  // namespace longhaul::dist
