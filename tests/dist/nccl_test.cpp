// GPU ranks over NCCL, started as a user starts them. Needs two GPUs, or one with LONGHAUL_SHARE_GPU=1 in the environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "dist/probe_run.h"

namespace longhaul::dist {
namespace {

using dist_test::error_lines;
using dist_test::ProbeResult;
using dist_test::ProbeRun;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::map<std::string, std::string> kTwoRanks{{"NPROC_PER_NODE", "2"}};

ProbeRun::Words words(ProbeRun::Words more) {
  more.insert(more.end(), {"device=cuda", "library=" LONGHAUL_BINARY_DIR "/liblonghaul_cuda.so"});
  if (std::getenv("LONGHAUL_SHARE_GPU") != nullptr) {
    more.emplace_back("share=1");
  }
  return more;
}

/// A run in which rank 1 goes wrong at step 3.
ProbeResult run_with_fault(const std::string& how, const std::string& deadline = "60000") {
  return dist_test::run_with_fault(
      words({"train", "how=" + how, "who=1", "at=3", "deadline=" + deadline}), kTwoRanks,
      seconds(60));
}

TEST(Nccl, EveryCollectiveIsRight) {
  ProbeRun run(words({"cases"}), kTwoRanks);
  const ProbeResult result = run.wait(seconds(100));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 of 2"), HasSubstr("rank 1 of 2")));
}

TEST(Nccl, NamesAKilledRank) {
  const ProbeResult result = run_with_fault("kill");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre(StartsWith("rank 1, step 3, step: the process was ended by signal 9")));
}

TEST(Nccl, NamesTheOperationThatAnotherRankIsLateFor) {
  const ProbeResult result = run_with_fault("sleep", "3000");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre(AllOf(StartsWith("rank 0, step 3, sum of gradients: not ended after 3 s"),
                                HasSubstr("another rank is late or gone"))));
}

TEST(Nccl, NamesAStoppedRank) {
  const ProbeResult result = run_with_fault("stop");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err), ElementsAre(StartsWith("rank 1, step 3, step: ")));
}

TEST(Nccl, PassesOnOneRanksOwnErrorAndItsExitStatus) {
  const ProbeResult result = run_with_fault("user");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(error_lines(result.err), ElementsAre(StartsWith("data.jsonl:7: is wrong")));
}

TEST(Nccl, PassesOnAnAbort) {
  const ProbeResult result = run_with_fault("abort");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre(AllOf(StartsWith("rank 1, step 3"), HasSubstr("memory is damaged"))));
}

TEST(Nccl, FinishesTheStepAfterCtrlC) {
  ProbeRun run(words({"train"}), kTwoRanks);
  ASSERT_TRUE(run.shows("step 2\n"));
  run.send_to_group(SIGINT);
  const ProbeResult result = run.wait(seconds(30));
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 checkpoint"), HasSubstr("rank 1 checkpoint")));
}

TEST(Nccl, RunsAgainAtOnceAfterAFault) {
  run_with_fault("kill");
  ProbeRun run(words({"train", "steps=3"}), kTwoRanks);
  EXPECT_EQ(run.wait(seconds(60)).status, 0);
}

}  // namespace
}  // namespace longhaul::dist
