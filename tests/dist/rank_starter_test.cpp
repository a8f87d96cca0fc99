// GPU ranks are started without mpirun; on a machine without a GPU they do everything but compute.
#include "dist/rank_starter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "dist/probe_run.h"

namespace longhaul::dist {
namespace {

using dist_test::error_lines;
using dist_test::ProbeResult;
using dist_test::ProbeRun;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

ProbeRun::Words words(ProbeRun::Words more) {
  more.insert(more.end(), {"device=cuda", "comm=none"});
  return more;
}

TEST(RankEnvironment, MakesARankOfAProcess) {
  const RankStarterRequest request{.command = {"/bin/true"},
                                   .ranks_per_node = 4,
                                   .nodes = 2,
                                   .node_rank = 1,
                                   .folder = "/tmp/launch",
                                   .cores = 16,
                                   .place = {.host = "first", .port = 1234}};
  const std::vector<std::string> variables =
      rank_environment(request, 2, {"RANK=7", "RANKS=9", "HOME=kept", "LOCAL_RANK=9"});
  for (const char* one :
       {"RANK=6", "LOCAL_RANK=2", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=first",
        "MASTER_PORT=1234", "LONGHAUL_LAUNCH_FOLDER=/tmp/launch", "OMP_NUM_THREADS=4", "RANKS=9",
        "HOME=kept"}) {
    EXPECT_THAT(variables, Contains(one));
  }
  EXPECT_THAT(variables, AllOf(Not(Contains("RANK=7")), Not(Contains("LOCAL_RANK=9"))));
  EXPECT_THAT(rank_environment(request, 0, {"OMP_NUM_THREADS=3"}), Contains("OMP_NUM_THREADS=3"));
}

TEST(RankStarter, StartsEveryRankWithItsNumbers) {
  ProbeRun run(words({"environment"}), {{"NPROC_PER_NODE", "3"}, {"PROBE_MARK", "kept"}});
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* line : {"rank 0 local 0 of 3 local 3", "rank 1 local 1 of 3 local 3",
                           "rank 2 local 2 of 3 local 3"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
  EXPECT_THAT(result.out, HasSubstr("mark kept"));
  EXPECT_TRUE(run.all_ranks_gone());
  EXPECT_TRUE(run.leaves_nothing_behind());
}

TEST(RankStarter, RanksMeet) {
  ProbeRun run(words({"meet"}), {{"NPROC_PER_NODE", "3"}});
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 has met 3"), HasSubstr("rank 2 has met 3")));
}

TEST(RankStarter, TwoLaunchersStartOneJob) {
  const auto variables = [](const char* node) {
    return std::map<std::string, std::string>{{"NPROC_PER_NODE", "2"},
                                              {"NNODES", "2"},
                                              {"NODE_RANK", node},
                                              {"MASTER_ADDR", "127.0.0.1"},
                                              {"MASTER_PORT", std::to_string(29471)}};
  };
  ProbeRun second(words({"meet"}), variables("1"));
  ProbeRun first(words({"meet"}), variables("0"));
  EXPECT_THAT(first.wait().out,
              AllOf(HasSubstr("rank 0 has met 4"), HasSubstr("rank 1 has met 4")));
  const ProbeResult result = second.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 2 has met 4"), HasSubstr("rank 3 has met 4")));
}

TEST(RankStarter, NamesAKilledRankAndEndsTheOthers) {
  ProbeRun run(words({"train"}), {{"NPROC_PER_NODE", "2"}});
  ASSERT_TRUE(run.shows("step 2\n"));
  run.send_to_rank(1, SIGKILL);
  const ProbeResult result = run.wait(seconds(20));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre(AllOf(StartsWith("rank 1, step "),
                                HasSubstr("the process was ended by signal 9"))));
  EXPECT_TRUE(run.all_ranks_gone());
  EXPECT_TRUE(run.leaves_nothing_behind());
}

TEST(RankStarter, NamesARankThatDiesBeforeItComesUp) {
  for (const auto& [how, said] : {std::pair{"early=kill", "signal 9"}, {"early=exit", "no room"}}) {
    ProbeRun run(words({"train", how, "who=1"}), {{"NPROC_PER_NODE", "2"}});
    const ProbeResult result = run.wait(seconds(20));
    EXPECT_EQ(result.status, 3);
    EXPECT_THAT(error_lines(result.err), ElementsAre(HasSubstr(said)));
    EXPECT_TRUE(run.all_ranks_gone());
  }
}

TEST(RankStarter, PassesOnOneRanksOwnErrorAndItsExitStatus) {
  ProbeRun run(words({"train", "how=user", "who=1", "at=3"}), {{"NPROC_PER_NODE", "2"}});
  const ProbeResult result = run.wait(seconds(20));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(error_lines(result.err), ElementsAre(StartsWith("data.jsonl:7: is wrong")));
}

TEST(RankStarter, FinishesTheStepAfterCtrlC) {
  ProbeRun run(words({"train", "all_speak=1"}), {{"NPROC_PER_NODE", "2"}});
  // These ranks do not wait for one another, and one that has ended no step would be stopped at once.
  ASSERT_TRUE(run.shows("rank 0 step 2\n") && run.shows("rank 1 step 2\n"));
  run.send_to_group(SIGINT);
  const ProbeResult result = run.wait(seconds(20));
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 checkpoint"), HasSubstr("rank 1 checkpoint")))
      << result.err;
  EXPECT_TRUE(run.leaves_nothing_behind());
}

}  // namespace
}  // namespace longhaul::dist
