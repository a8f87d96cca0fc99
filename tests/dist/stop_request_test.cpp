// Handlers belong to a process, so each case runs in a process of its own.
#include "dist/stop_request.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace longhaul::dist {
namespace {

/// Exit status of `body` in a child, or 128 + signal.
template <typename Body>
int status_of(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

void pass_time() { std::this_thread::sleep_for(std::chrono::milliseconds(150)); }

TEST(StopRequest, EndsTheProcessBeforeTheFirstStepHasEnded) {
  EXPECT_EQ(status_of([] {
              install_stop_handlers(nullptr, nullptr);
              raise(SIGINT);
            }),
            130);
  EXPECT_EQ(status_of([] {
              install_stop_handlers(nullptr, nullptr);
              raise(SIGTERM);
            }),
            143);
  EXPECT_EQ(status_of([] {
              install_stop_handlers(nullptr, nullptr);
              raise(SIGHUP);
            }),
            129);
}

TEST(StopRequest, AClosedTerminalIsOneWishHoweverOftenItIsSaid) {
  EXPECT_EQ(status_of([] {
              install_stop_handlers(nullptr, nullptr);
              first_step_has_ended();
              raise(SIGHUP);
              pass_time();
              raise(SIGHUP);
              const StopRequest request = stop_requested();
              _exit(request.count == 1 ? request.exit_code() : 1);
            }),
            129);
}

TEST(StopRequest, ASignalAfterAClosedTerminalIsTheSecondOne) {
  EXPECT_EQ(status_of([] {
              install_stop_handlers(nullptr, nullptr);
              first_step_has_ended();
              raise(SIGHUP);
              pass_time();
              raise(SIGTERM);
            }),
            129);
}

TEST(StopRequest, AHangupThatNohupIgnoresStaysIgnored) {
  EXPECT_EQ(status_of([] {
              std::signal(SIGHUP, SIG_IGN);
              install_stop_handlers(nullptr, nullptr);
              raise(SIGHUP);
              _exit(stop_requested().count == 0 ? 0 : 1);
            }),
            0);
}

TEST(StopRequest, ARankIgnoresHangupsWhenItsLauncherDoes) {
  EXPECT_EQ(status_of([] {
              LauncherPage launcher;
              RankPage mine;
              launcher.ignores_hangup = 1;
              install_stop_handlers(&launcher, &mine);
              raise(SIGHUP);
              _exit(mine.stop_signal == 0 && stop_requested().count == 0 ? 0 : 1);
            }),
            0);
}

TEST(StopRequest, IsAWishAfterTheFirstStep) {
  EXPECT_EQ(status_of([] {
              install_stop_handlers(nullptr, nullptr);
              first_step_has_ended();
              if (stop_requested().count != 0) {
                _exit(1);
              }
              raise(SIGTERM);
              const StopRequest request = stop_requested();
              _exit(request.count == 1 && request.signal == SIGTERM ? request.exit_code() : 2);
            }),
            143);
}

TEST(StopRequest, EndsTheProcessTheSecondTime) {
  EXPECT_EQ(status_of([] {
              install_stop_handlers(nullptr, nullptr);
              first_step_has_ended();
              raise(SIGINT);
              pass_time();
              raise(SIGTERM);
            }),
            130);
}

TEST(StopRequest, TakesSignalsInQuickSuccessionAsOne) {
  EXPECT_EQ(status_of([] {
              install_stop_handlers(nullptr, nullptr);
              first_step_has_ended();
              raise(SIGINT);
              raise(SIGINT);
              _exit(stop_requested().count == 1 ? 0 : 1);
            }),
            0);
}

TEST(StopRequest, UnderALauncherIsTheLaunchersAndNeverEndsTheRank) {
  EXPECT_EQ(status_of([] {
              LauncherPage launcher;
              RankPage mine;
              install_stop_handlers(&launcher, &mine);
              raise(SIGTERM);
              pass_time();
              raise(SIGTERM);
              if (mine.stop_signal != SIGTERM || stop_requested().count != 1) {
                _exit(1);
              }
              launcher.stop_signal = SIGINT;
              launcher.stop_requests = 1;
              _exit(stop_requested().exit_code());
            }),
            130);
}

TEST(StopRequest, IsHeardEvenIfTheStarterBlockedTheSignals) {
  EXPECT_EQ(status_of([] {
              sigset_t both;
              sigemptyset(&both);
              sigaddset(&both, SIGINT);
              sigprocmask(SIG_BLOCK, &both, nullptr);
              install_stop_handlers(nullptr, nullptr);
              raise(SIGINT);
            }),
            130);
}

TEST(StopRequest, IsIgnoredWhileTheRankWindsUp) {
  EXPECT_EQ(status_of([] {
              RankPage mine;
              LauncherPage launcher;
              install_stop_handlers(&launcher, &mine);
              ignore_stop_signals();
              raise(SIGTERM);
              raise(SIGINT);
              _exit(mine.stop_signal == 0 ? 0 : 1);
            }),
            0);
}

}  // namespace
}  // namespace longhaul::dist
