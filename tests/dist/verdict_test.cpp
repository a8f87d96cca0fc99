#include "dist/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

RankEnd end_of(std::int64_t rank, Outcome outcome, int exit_code, std::int64_t at,
               std::vector<std::string> lines = {}) {
  RankEnd end;
  end.rank = rank;
  end.place = "rank " + std::to_string(rank) + ", step 7, sum of gradients";
  end.outcome = outcome;
  end.exit_code = exit_code;
  end.outcome_ns = at;
  end.lines = std::move(lines);
  return end;
}

RankEnd death_of(std::int64_t rank, std::int64_t at) {
  RankEnd end = end_of(rank, Outcome::kRunning, 0, 0);
  end.died_ns = at;
  return end;
}

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(Verdict, IsSilentWhenAllFinished) {
  const Verdict verdict =
      judge({end_of(0, Outcome::kFinished, 0, 1), end_of(1, Outcome::kFinished, 0, 2)}, {});
  EXPECT_EQ(verdict.exit_code, 0);
  EXPECT_THAT(verdict.error_lines, IsEmpty());
}

TEST(Verdict, PassesOnAnInterruptedEnd) {
  // mpirun calls every status but 0 a failure; the ranks know better.
  const Verdict verdict =
      judge({end_of(0, Outcome::kFinished, 130, 1), end_of(1, Outcome::kFinished, 130, 2)},
            {.status = 130, .output = {"mpirun detected that one or more processes exited"}});
  EXPECT_EQ(verdict.exit_code, 130);
  EXPECT_THAT(verdict.error_lines, IsEmpty());
}

TEST(Verdict, TakesTheFirstOfSeveralErrors) {
  const Verdict verdict =
      judge({end_of(0, Outcome::kError, 3, 2 * kSecond, {"later"}),
             end_of(1, Outcome::kError, 2, kSecond, {"first", "and second line"})},
            {});
  EXPECT_EQ(verdict.exit_code, 2);
  EXPECT_THAT(verdict.error_lines, ElementsAre("first", "and second line"));
}

TEST(Verdict, BelievesADeathBeforeTheErrorsItCauses) {
  const Verdict verdict =
      judge({end_of(0, Outcome::kError, 3, 2 * kSecond, {"MPI: broken"}), death_of(1, kSecond)},
            {.status = 137, .output = {}});
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_THAT(verdict.error_lines,
              ElementsAre(StartsWith(
                  "rank 1, step 7, sum of gradients: the process was ended by signal 9")));
}

TEST(Verdict, BelievesAnErrorBeforeTheDeathsThatFollow) {
  const Verdict verdict = judge({end_of(0, Outcome::kError, 2, kSecond, {"data.jsonl:3: is wrong"}),
                                 death_of(1, 2 * kSecond)},
                                {.status = 2, .output = {}});
  EXPECT_EQ(verdict.exit_code, 2);
  EXPECT_THAT(verdict.error_lines, ElementsAre("data.jsonl:3: is wrong"));
}

TEST(Verdict, LetsMpirunDecideBetweenDeathsSeenTogether) {
  const StarterEnd starter{
      .status = 139,
      .output = {"--------",
                 "mpirun noticed that process rank 2 with PID 0 on node x exited on signal 11 "
                 "(Segmentation fault)."}};
  const Verdict verdict =
      judge({death_of(0, kSecond), death_of(1, kSecond), death_of(2, kSecond + 5)}, starter);
  EXPECT_THAT(verdict.error_lines,
              ElementsAre("rank 2, step 7, sum of gradients: the process was ended by signal 11 "
                          "(Segmentation fault)"));
}

RankEnd never_up(std::int64_t rank) {
  RankEnd end;
  end.rank = rank;
  end.place = "rank " + std::to_string(rank) + ", step 0, start";
  end.has_come_up = false;
  return end;
}

TEST(Verdict, BelievesMpirunAboutARankThatDiedBeforeItCameUp) {
  const Verdict killed = judge(
      {death_of(0, kSecond), never_up(1)},
      {.status = 137,
       .output = {"mpirun noticed that process rank 1 with PID 0 on node x exited on signal 9 "
                  "(Killed)."}});
  EXPECT_EQ(killed.exit_code, 3);
  EXPECT_THAT(
      killed.error_lines,
      ElementsAre(StartsWith("rank 1, step 0, start: the process was ended by signal 9 (Killed)")));
  const Verdict left = judge({death_of(0, kSecond), never_up(1)},
                             {.status = 7,
                              .output = {"rank 1 has no room", "The first process to do so was:",
                                         "  Process name: [[356,1],1]", "  Exit code:    7"}});
  EXPECT_EQ(left.exit_code, 3);
  EXPECT_THAT(left.error_lines,
              ElementsAre(StartsWith(
                  "mpirun: could not run the ranks (exit status 7): rank 1 has no room ")));
}

TEST(Verdict, DoesNotBlameARankThatCameUpWhenItCannotKnow) {
  const Verdict verdict =
      judge({death_of(0, kSecond), never_up(1), never_up(2)}, {.status = 137, .output = {}});
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_THAT(
      verdict.error_lines,
      ElementsAre("mpirun: a rank died while starting (not yet up: rank 1, rank 2; exit status "
                  "137)"));
  const Verdict known = judge({death_of(0, kSecond), never_up(1)},
                              {.status = 139,
                               .output = {"mpirun noticed that process rank 0 with PID 0 on node x "
                                          "exited on signal 11 (Segmentation fault)."}});
  EXPECT_THAT(known.error_lines,
              ElementsAre(StartsWith("rank 0, step 7, sum of gradients: the process was ended by "
                                     "signal 11")));
}

TEST(Verdict, BelievesAComplaintAboutAPeerOnlyWhenNothingBetterIsKnown) {
  const RankEnd complaint =
      end_of(0, Outcome::kPeerError, 3, kSecond, {"rank 1, step 7, sum: did not arrive"});
  EXPECT_THAT(judge({complaint, end_of(1, Outcome::kRunning, 0, 0)}, {}).error_lines,
              ElementsAre("rank 1, step 7, sum: did not arrive"));
  RankEnd stuck = end_of(1, Outcome::kRunning, 0, 0);
  stuck.stuck = "gave no sign of life for 10 s";
  EXPECT_THAT(judge({complaint, stuck}, {}).error_lines,
              ElementsAre("rank 1, step 7, sum of gradients: gave no sign of life for 10 s"));
  EXPECT_THAT(judge({complaint, end_of(1, Outcome::kError, 3, 5 * kSecond, {"disk is full"})}, {})
                  .error_lines,
              ElementsAre("disk is full"));
}

TEST(Verdict, QuotesMpirunOnOneLineWhenNoRankExplainsTheFailure) {
  const Verdict verdict = judge(
      {end_of(0, Outcome::kRunning, 0, 0)},
      {.status = 1, .output = {"-----------", "There are not enough slots", "  available.", ""}});
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_THAT(verdict.error_lines, ElementsAre("mpirun: could not run the ranks (exit status 1): "
                                               "There are not enough slots available."));
}

TEST(Verdict, DoesNotCallACrashAfterTheEndASuccess) {
  const Verdict verdict =
      judge({end_of(0, Outcome::kFinished, 0, 1)}, {.status = 139, .output = {"signal 11"}});
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_THAT(verdict.error_lines, ElementsAre(HasSubstr("signal 11")));
}

}  // namespace
}  // namespace longhaul::dist
