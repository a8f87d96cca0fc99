// The launcher with real processes: whatever goes wrong on one rank, all are gone soon, the exit status is right, there is
// exactly one line and it names the rank, and nothing is left behind.
#include "dist/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "dist/probe_run.h"

namespace longhaul::dist {
namespace {

using dist_test::error_lines;
using dist_test::ProbeResult;
using dist_test::ProbeRun;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Launcher : public testing::Test {
 protected:
  void SetUp() override {
    if (!dist_test::has_mpi()) {
      GTEST_SKIP() << "needs Open MPI";
    }
  }
  /// A run of `ranks` ranks in which rank `who` goes wrong at step 3.
  static ProbeResult run_with_fault(const std::string& how, const std::string& ranks = "2",
                                    const std::string& who = "1",
                                    const std::string& deadline = "2500") {
    return dist_test::run_with_fault(
        {"train", "how=" + how, "who=" + who, "at=3", "deadline=" + deadline},
        {{"NPROC_PER_NODE", ranks}}, seconds(50));
  }
};

TEST_F(Launcher, NamesAKilledRankWithStepAndWhatItWasDoing) {
  const ProbeResult result = run_with_fault("kill");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre(StartsWith("rank 1, step 3, step: the process was ended by signal 9")));
}

TEST_F(Launcher, NamesAKilledRankZero) {
  const ProbeResult result = run_with_fault("kill", "3", "0");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err), ElementsAre(StartsWith("rank 0, step 3, step: ")));
}

TEST_F(Launcher, NamesACrashedRankWithoutAStackTrace) {
  const ProbeResult result = run_with_fault("segv");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(
      error_lines(result.err),
      ElementsAre("rank 1, step 3, step: the process was ended by signal 11 (Segmentation fault)"));
}

TEST_F(Launcher, NamesARankThatLeavesEarly) {
  const ProbeResult result = run_with_fault("exit");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre("rank 1, step 3, step: the process ended without saying why"));
}

TEST_F(Launcher, NamesAStoppedRank) {
  const ProbeResult result = run_with_fault("stop", "3", "1", "60000");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre("rank 1, step 3, step: gave no sign of life for 10 s: the process is "
                          "stopped (SIGSTOP)"));
}

TEST_F(Launcher, NamesARankThatSleepsPastTheDeadline) {
  const ProbeResult result = run_with_fault("sleep");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre("rank 1, step 3, sum of gradients: did not arrive within 2.5 s; rank 0 "
                          "gave up waiting"));
}

TEST_F(Launcher, PassesOnOneRanksOwnErrorAndItsExitStatus) {
  const ProbeResult user = run_with_fault("user");
  EXPECT_EQ(user.status, 2);
  EXPECT_THAT(error_lines(user.err), ElementsAre("data.jsonl:7: is wrong on one rank only"));
  const ProbeResult system = run_with_fault("system", "3", "2");
  EXPECT_EQ(system.status, 3);
  EXPECT_THAT(error_lines(system.err), ElementsAre("/disk: no space left"));
  const ProbeResult bug = run_with_fault("bug");
  EXPECT_EQ(bug.status, 4);
  EXPECT_THAT(error_lines(bug.err), ElementsAre(HasSubstr("internal error: one rank has a bug")));
}

TEST_F(Launcher, PassesOnAnAbort) {
  const ProbeResult result = run_with_fault("abort");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err), ElementsAre("rank 1, step 3, abort: memory is damaged"));
}

TEST_F(Launcher, CallsRanksInDifferentOperationsABug) {
  const ProbeResult result = run_with_fault("size");
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(error_lines(result.err), ElementsAre(HasSubstr("is in another operation")));
}

TEST_F(Launcher, PrintsAnErrorOfAllRanksOnce) {
  ProbeRun run({"train", "how=all-user", "at=2"}, {{"NPROC_PER_NODE", "4"}});
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(error_lines(result.err), ElementsAre("data.jsonl:7: is wrong on every rank"));
  EXPECT_TRUE(run.all_ranks_gone());
}

TEST_F(Launcher, NamesARankKilledFromOutside) {
  ProbeRun run({"train"}, {{"NPROC_PER_NODE", "2"}});
  ASSERT_TRUE(run.shows("step 5\n"));
  run.send_to_rank(0, SIGKILL);
  const ProbeResult result = run.wait(seconds(20));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre(testing::ContainsRegex(
                  "^rank 0, step [0-9]+, .*: the process was ended by signal 9")));
  EXPECT_TRUE(run.all_ranks_gone());
}

// --- an output that nobody reads ----------------------------------------------------------------------------

/// A pipe from a probe's standard output, read only when the test says so.
class Unread {
 public:
  Unread() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  Unread(const Unread&) = delete;
  Unread& operator=(const Unread&) = delete;
  ~Unread() {
    close_input();
    close(ends_[0]);
  }
  [[nodiscard]] int input() const { return ends_[1]; }
  void close_input() {
    if (ends_[1] >= 0) {
      close(std::exchange(ends_[1], -1));
    }
  }
  /// The next `bytes` bytes, or fewer at the end.
  [[nodiscard]] std::string read_bytes(std::size_t bytes) const {
    std::string text(bytes, '\0');
    std::size_t got = 0;
    while (got < bytes) {
      const ssize_t more = read(ends_[0], text.data() + got, bytes - got);
      if (more <= 0) {
        break;
      }
      got += static_cast<std::size_t>(more);
    }
    text.resize(got);
    return text;
  }
  /// Reads on until all ranks have ended the first step, and no further.
  [[nodiscard]] bool shows_step_2(std::size_t noise) const {
    constexpr std::string_view kLines = "step 1\nstep 2\n";
    return read_bytes(noise + kLines.size()).size() == noise + kLines.size();
  }

 private:
  std::array<int, 2> ends_{};
};

constexpr const char* kLostOutput = "bytes of output were given up, because nobody reads them";

TEST_F(Launcher, StopsAtOnceOnASecondCtrlCWhenNobodyReadsItsOutput) {
  Unread output;
  ProbeRun run({"train", "noise=3000000"}, {{"NPROC_PER_NODE", "2"}}, {}, output.input());
  output.close_input();
  ASSERT_TRUE(output.shows_step_2(3'000'000));
  run.send(SIGINT);
  // Rank 0 may be held up in mid-step by its own output.
  ASSERT_TRUE(run.complains("once more: stops at once", seconds(20)));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  run.send(SIGINT);
  const ProbeResult result = run.wait(seconds(20));
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(result.err, Not(HasSubstr("error")));
  EXPECT_TRUE(run.all_ranks_gone());
  EXPECT_TRUE(run.leaves_nothing_behind());
}

TEST_F(Launcher, FinishesTheStepAfterSigtermWhenNobodyReadsItsOutput) {
  Unread output;
  ProbeRun run({"train", "noise=100000", "ms=100"}, {{"NPROC_PER_NODE", "2"}}, {}, output.input());
  output.close_input();
  ASSERT_TRUE(output.shows_step_2(100'000));
  run.send(SIGTERM);
  const ProbeResult result = run.wait(seconds(30));
  EXPECT_EQ(result.status, 143);
  EXPECT_THAT(result.err, HasSubstr(kLostOutput));
  EXPECT_TRUE(run.all_ranks_gone());
}

TEST_F(Launcher, NamesAKilledRankWhenNobodyReadsItsOutput) {
  Unread output;
  ProbeRun run({"train", "noise=3000000"}, {{"NPROC_PER_NODE", "2"}}, {}, output.input());
  output.close_input();
  ASSERT_TRUE(output.shows_step_2(3'000'000));
  run.send_to_rank(1, SIGKILL);
  const ProbeResult result = run.wait(seconds(30));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre(testing::AllOf(
                  testing::ContainsRegex("^rank 1, step [0-9]+, .*: the process was ended by "
                                         "signal 9"),
                  HasSubstr(kLostOutput))));
  EXPECT_TRUE(run.all_ranks_gone());
}

TEST_F(Launcher, LosesNothingWhenItsOutputIsReadLate) {
  constexpr std::size_t kNoise = 1'000'000;  // six of them are more than the launcher keeps
  Unread output;
  ProbeRun run({"train", "steps=6", "noise=1000000"}, {{"NPROC_PER_NODE", "2"}}, {},
               output.input());
  output.close_input();
  std::string text = output.read_bytes(3 * kNoise);
  EXPECT_TRUE(run.has_rank(1));
  EXPECT_TRUE(run.all_ranks_gone());                             // the rest is with the launcher
  std::this_thread::sleep_for(std::chrono::milliseconds(3000));  // longer than a failure waits
  text += output.read_bytes(7 * kNoise);
  EXPECT_EQ(run.wait(seconds(20)).status, 0);
  std::string expected;
  for (int step = 1; step <= 6; ++step) {
    expected += "step " + std::to_string(step) + "\n" + std::string(kNoise, '.');
  }
  EXPECT_EQ(text.size(), expected.size());
  EXPECT_TRUE(text == expected);
}

TEST_F(Launcher, CanBeStoppedWhileItsLastOutputWaitsForAReader) {
  Unread output;
  ProbeRun run({"train", "steps=2", "noise=100000"}, {{"NPROC_PER_NODE", "2"}}, {}, output.input());
  output.close_input();
  ASSERT_TRUE(run.has_rank(1));
  ASSERT_TRUE(run.all_ranks_gone());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(seconds(20)).status, 143);
}

// --- signals ------------------------------------------------------------------------------------------------

/// Sends `signal` in mid-run; every rank must finish the same step and write its checkpoint.
void expect_stop_after_step(int signal, bool to_group, int status) {
  ProbeRun run({"train", "ms=50"}, {{"NPROC_PER_NODE", "3"}});
  ASSERT_TRUE(run.shows("step 4\n"));
  to_group ? run.send_to_group(signal) : run.send(signal);
  const ProbeResult result = run.wait(seconds(30));
  EXPECT_EQ(result.status, status);
  EXPECT_EQ(result.err,
            "longhaul: stopping after this step and its checkpoint (once more: stops at once)\n");
  const std::size_t at = result.out.find("checkpoint ");
  ASSERT_NE(at, std::string::npos) << result.out;
  const std::string step = result.out.substr(at, result.out.find('\n', at) - at + 1);
  for (const char* rank : {"rank 0 ", "rank 1 ", "rank 2 "}) {
    EXPECT_THAT(result.out, HasSubstr(rank + step));
  }
  EXPECT_TRUE(run.all_ranks_gone());
  EXPECT_TRUE(run.leaves_nothing_behind());
}

TEST_F(Launcher, FinishesTheStepAfterCtrlC) { expect_stop_after_step(SIGINT, false, 130); }
TEST_F(Launcher, FinishesTheStepAfterCtrlCToTheGroup) { expect_stop_after_step(SIGINT, true, 130); }
TEST_F(Launcher, FinishesTheStepAfterSigterm) { expect_stop_after_step(SIGTERM, false, 143); }
TEST_F(Launcher, FinishesTheStepWhenTheTerminalIsClosed) {
  expect_stop_after_step(SIGHUP, true, 129);
}

TEST_F(Launcher, FinishesTheStepWhenOneRankIsSignalled) {
  ProbeRun run({"train"}, {{"NPROC_PER_NODE", "2"}});
  ASSERT_TRUE(run.shows("step 4\n"));
  run.send_to_rank(1, SIGTERM);
  const ProbeResult result = run.wait(seconds(30));
  EXPECT_EQ(result.status, 143);
  EXPECT_THAT(result.out, HasSubstr("rank 0 checkpoint"));
  EXPECT_THAT(result.out, HasSubstr("rank 1 checkpoint"));
}

TEST_F(Launcher, StopsAtOnceOnASecondCtrlC) {
  ProbeRun run({"train", "ms=4000"}, {{"NPROC_PER_NODE", "2"}});
  ASSERT_TRUE(run.shows("step 1\n"));
  run.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  run.send(SIGINT);
  const ProbeResult result = run.wait(seconds(20));
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(result.out, Not(HasSubstr("checkpoint")));
  EXPECT_THAT(result.err, Not(HasSubstr("error")));
  EXPECT_TRUE(run.all_ranks_gone());
}

TEST_F(Launcher, StopsAtOnceBeforeTheFirstStepEnds) {
  ProbeRun run({"train", "ms=60000"}, {{"NPROC_PER_NODE", "2"}});
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  run.send(SIGTERM);
  const ProbeResult result = run.wait(seconds(20));
  EXPECT_EQ(result.status, 143);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(run.all_ranks_gone());
  EXPECT_TRUE(run.leaves_nothing_behind());
}

TEST_F(Launcher, StopsAtOnceBeforeAllRanksHaveComeUp) {
  ProbeRun run({"train", "early=wait", "who=1"}, {{"NPROC_PER_NODE", "2"}});
  ASSERT_TRUE(run.has_rank(0));
  run.send(SIGINT);
  const ProbeResult result = run.wait(seconds(20));
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(run.all_ranks_gone());
}

TEST_F(Launcher, LeavesNoRankBehindWhenItIsKilledItself) {
  ProbeRun run({"train"}, {{"NPROC_PER_NODE", "3"}});
  ASSERT_TRUE(run.shows("step 3\n"));
  run.send(SIGKILL);
  EXPECT_EQ(run.wait(seconds(10)).status, 128 + SIGKILL);
  EXPECT_TRUE(run.all_ranks_gone());
  EXPECT_TRUE(run.leaves_nothing_behind());
}

TEST_F(Launcher, IsNotMistakenAboutRanksAfterASuspension) {
  ProbeRun run({"train", "steps=400"}, {{"NPROC_PER_NODE", "2"}});
  ASSERT_TRUE(run.shows("step 3\n"));
  run.send(SIGSTOP);  // the launcher alone; its ranks go on, and fill their pipe at most
  std::this_thread::sleep_for(seconds(12));
  run.send(SIGCONT);
  const ProbeResult result = run.wait(seconds(60));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("step 400\n"));
}

// --- start --------------------------------------------------------------------------------------------------

TEST_F(Launcher, GivesRanksTheWholeEnvironmentAndTheirShareOfCores) {
  ProbeRun run({"environment", "sp=2", "words=with space 'and' \"quotes\""},
               {{"NPROC_PER_NODE", "4"}, {"PROBE_MARK", "käse = \"x\""}, {"OMP_NUM_THREADS", "3"}});
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (const char* line :
       {"rank 0 local 0 of 4 local 4 threads 3 mark käse = \"x\" sp 0 dp 0 words with space 'and' "
        "\"quotes\"\n",
        "rank 1 local 1 of 4 local 4 threads 3 mark käse = \"x\" sp 1 dp 0 words with",
        "rank 2 local 2 of 4 local 4 threads 3 mark käse = \"x\" sp 0 dp 1 words with",
        "rank 3 local 3 of 4 local 4 threads 3 mark käse = \"x\" sp 1 dp 1 words with"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST_F(Launcher, WorksInsideASlurmAllocationWithoutItsHelp) {
  ProbeRun run({"environment"}, {{"NPROC_PER_NODE", "2"},
                                 {"SLURM_JOB_ID", "77"},
                                 {"SLURM_JOBID", "77"},
                                 {"SLURM_NODELIST", "node[1-2]"},
                                 {"SLURM_NNODES", "2"},
                                 {"SLURM_TASKS_PER_NODE", "1(x2)"}});
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 1 local 1 of 2"));
}

TEST_F(Launcher, NamesARankThatIsKilledBeforeItComesUp) {
  ProbeRun run({"train", "early=kill", "who=1"}, {{"NPROC_PER_NODE", "2"}});
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre(StartsWith("rank 1, step 0, start: the process was ended by signal 9")));
  EXPECT_TRUE(run.all_ranks_gone());
  EXPECT_TRUE(run.leaves_nothing_behind());
}

TEST_F(Launcher, PassesOnWhyARankLeftBeforeItCameUp) {
  ProbeRun run({"train", "early=exit", "who=1"}, {{"NPROC_PER_NODE", "2"}});
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre(StartsWith(
                  "mpirun: could not run the ranks (exit status 9): no room for this rank ")));
}

TEST_F(Launcher, SaysWhatMpirunSaidWhenNothingStarts) {
  ProbeRun run({"environment"}, {{"NPROC_PER_NODE", "2"}, {"OMPI_MCA_plm", "no_such_part"}});
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(error_lines(result.err),
              ElementsAre(testing::AllOf(StartsWith("mpirun: could not run the ranks"),
                                         HasSubstr("no_such_part"))));
}

// --- ranks that somebody else started -----------------------------------------------------------------------

const std::map<std::string, std::string> kMpirunAsRoot{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                                       {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
const ProbeRun::Words kTwoRanks{"mpirun", "--oversubscribe", "-np", "2"};

/// Error lines among mpirun's own.
std::vector<std::string> our_lines(const std::string& text) {
  std::vector<std::string> ours;
  for (const std::string& line : error_lines(text)) {
    if (line.rfind("UNEXPECTED", 0) != 0) {
      ours.push_back(line);
    }
  }
  return ours;
}

TEST_F(Launcher, StartsNothingUnderMpirun) {
  ProbeRun run({"environment"}, kMpirunAsRoot, kTwoRanks);
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 0 local 0 of 2"));
  EXPECT_THAT(result.out, HasSubstr("rank 1 local 1 of 2"));
  EXPECT_EQ(result.err, "");
}

TEST_F(Launcher, RanksOfMpirunPrintACommonErrorOnce) {
  ProbeRun run({"train", "how=all-user", "at=2"}, kMpirunAsRoot, kTwoRanks);
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(our_lines(result.err), ElementsAre("data.jsonl:7: is wrong on every rank"));
}

TEST_F(Launcher, RanksOfMpirunNameAKilledOne) {
  ProbeRun run({"train", "how=kill", "who=1", "at=3"}, kMpirunAsRoot, kTwoRanks);
  const ProbeResult result = run.wait();
  EXPECT_NE(result.status, 0);  // mpirun's own choice
  EXPECT_THAT(our_lines(result.err),
              ElementsAre("rank 1, step 3, step: the process ended without saying why"));
  EXPECT_TRUE(run.all_ranks_gone());
}

TEST_F(Launcher, RanksOfMpirunEndWhenOneIsStopped) {
  ProbeRun run({"train", "how=stop", "who=1", "at=3"}, kMpirunAsRoot, kTwoRanks);
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(our_lines(result.err),
              ElementsAre(StartsWith("rank 1, step 3, step: gave no sign of life for 10 s")));
  EXPECT_TRUE(run.all_ranks_gone());
}

TEST_F(Launcher, RanksOfMpirunEndWithIt) {
  ProbeRun run({"train"}, kMpirunAsRoot, kTwoRanks);
  ASSERT_TRUE(run.shows("step 3\n"));
  run.send(SIGKILL);
  EXPECT_TRUE(run.all_ranks_gone());
}

TEST(LauncherOfOneRank, FinishesTheStepOrStopsAtOnce) {
  ProbeRun run({"train"}, {});
  ASSERT_TRUE(run.shows("step 3\n"));
  run.send(SIGINT);
  const ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(result.out, HasSubstr("rank 0 checkpoint"));
  ProbeRun early({"train", "ms=60000"}, {});
  std::this_thread::sleep_for(seconds(2));
  early.send(SIGTERM);
  EXPECT_EQ(early.wait(seconds(10)).status, 143);
  ProbeRun twice({"train", "ms=4000"}, {});
  ASSERT_TRUE(twice.shows("step 1\n"));
  twice.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  twice.send(SIGINT);
  EXPECT_EQ(twice.wait(seconds(3)).status, 130);
}

}  // namespace
}  // namespace longhaul::dist
