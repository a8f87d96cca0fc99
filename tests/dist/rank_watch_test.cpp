#include "dist/rank_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace longhaul::dist {
namespace {

using std::chrono::milliseconds;

constexpr WatchLimits kShort{.heartbeat = milliseconds(1000), .start = milliseconds(2000)};

/// A process that only waits, killed at the end.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    if (pid_ == 0) {
      pause();
      _exit(0);
    }
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() { end(); }
  void end() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = 0;
    }
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(RankWatch, FindsARankThatNeverStarts) {
  RankPage page;
  RankWatch watch;
  watch.look(page, milliseconds(1500), kShort, true);
  EXPECT_EQ(watch.stuck(), "");
  watch.look(page, milliseconds(600), kShort, true);
  EXPECT_EQ(watch.stuck(), "did not start within 2 s");
}

TEST(RankWatch, FindsASilentRankOnlyAfterTheLimit) {
  Sleeper sleeper;
  RankPage page;
  page.pid = sleeper.pid();
  RankWatch watch;
  for (int i = 0; i < 20; ++i) {
    ++page.heartbeat;
    watch.look(page, milliseconds(500), kShort, true);
  }
  EXPECT_EQ(watch.stuck(), "");
  watch.look(page, milliseconds(900), kShort, true);
  EXPECT_EQ(watch.stuck(), "");
  watch.look(page, milliseconds(200), kShort, true);
  EXPECT_EQ(watch.stuck(), "gave no sign of life for 1 s");
  EXPECT_FALSE(watch.died_ns());
}

TEST(RankWatch, TellsDeathFromARecordedEnd) {
  for (const Outcome outcome : {Outcome::kRunning, Outcome::kFinished, Outcome::kError}) {
    Sleeper sleeper;
    RankPage page;
    page.pid = sleeper.pid();
    RankWatch watch;
    watch.look(page, milliseconds(10), kShort, true);
    EXPECT_TRUE(watch.is_running());
    page.outcome = outcome;
    sleeper.end();
    watch.look(page, milliseconds(10), kShort, true);
    EXPECT_TRUE(watch.has_ended());
    EXPECT_EQ(watch.died_ns().has_value(), outcome == Outcome::kRunning);
  }
}

TEST(RankWatch, BlamesNobodyWhileTheJobIsBeingEnded) {
  Sleeper sleeper;
  RankPage page;
  page.pid = sleeper.pid();
  RankWatch watch;
  watch.look(page, milliseconds(10), kShort, true);
  watch.look(page, milliseconds(5000), kShort, false);
  sleeper.end();
  watch.look(page, milliseconds(10), kShort, false);
  EXPECT_TRUE(watch.has_ended());
  EXPECT_FALSE(watch.died_ns());
  EXPECT_EQ(watch.stuck(), "");
}

TEST(PeerWatch, ReportsADeadPeerAndFollowsOneThatHasExplainedItself) {
  const LaunchFolder folder(3);
  PeerWatch watch(folder.path(), 0, 3);
  Sleeper one;
  Sleeper two;
  folder.rank(1).pid = one.pid();
  folder.rank(2).pid = two.pid();
  folder.rank(1).step = 5;
  EXPECT_FALSE(watch.look(milliseconds(200)));
  record_outcome(folder.rank(2), Outcome::kError, 2, "said already");
  two.end();
  EXPECT_FALSE(watch.look(milliseconds(200)));
  const auto follow = watch.look(milliseconds(2500));
  ASSERT_TRUE(follow);
  EXPECT_EQ(follow->line, "");
  one.end();
  const auto fault = watch.look(milliseconds(200));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->line, "rank 1, step 5, start: the process ended without saying why");
}

TEST(PeerWatch, LetsPeersFinish) {
  const LaunchFolder folder(2);
  PeerWatch watch(folder.path(), 0, 2);
  Sleeper peer;
  folder.rank(1).pid = peer.pid();
  EXPECT_FALSE(watch.look(milliseconds(200)));
  record_outcome(folder.rank(1), Outcome::kFinished, 0, "");
  peer.end();
  EXPECT_FALSE(watch.look(milliseconds(9000)));
}

}  // namespace
}  // namespace longhaul::dist
