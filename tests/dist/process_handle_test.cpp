#include "dist/process_handle.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace longhaul::dist {
namespace {

pid_t start_sleeper() {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  return child;
}

/// Looks for up to two seconds.
template <typename Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 200 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

TEST(ProcessHandle, SeesAnEndBeforeTheParentHasCollectedIt) {
  const pid_t child = start_sleeper();
  const ProcessHandle handle(child);
  EXPECT_TRUE(handle.is_alive());
  handle.send(SIGKILL);
  EXPECT_TRUE(soon([&] { return !handle.is_alive(); }));
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(handle.is_alive());
  handle.send(SIGKILL);  // harmless
}

TEST(ProcessHandle, TellsAStoppedProcess) {
  const pid_t child = start_sleeper();
  const ProcessHandle handle(child);
  EXPECT_FALSE(handle.is_stopped());
  handle.send(SIGSTOP);
  EXPECT_TRUE(soon([&] { return handle.is_stopped(); }));
  EXPECT_TRUE(handle.is_alive());
  handle.send(SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(ProcessHandle, IsNotAliveWhenThereIsNoSuchProcess) {
  const pid_t child = start_sleeper();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(ProcessHandle(child).is_alive());
  EXPECT_FALSE(ProcessHandle().is_alive());
}

TEST(ProcessHandle, MovesWithoutLosingTheProcess) {
  const pid_t child = start_sleeper();
  ProcessHandle first(child);
  ProcessHandle second;
  second = std::move(first);
  EXPECT_TRUE(second.is_alive());
  EXPECT_EQ(second.pid(), child);
  second.send(SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace longhaul::dist
