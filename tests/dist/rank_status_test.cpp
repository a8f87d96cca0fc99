#include "dist/rank_status.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

#include "dist/stop_request.h"

namespace longhaul::dist {
namespace {

using std::chrono::milliseconds;

TEST(RankStatus, WorksWithoutALauncher) {
  RankStatus status;
  EXPECT_FALSE(status.has_launcher());
  EXPECT_EQ(status.launcher_page(), nullptr);
  status.set_activity("load weights");
  status.operation_begins("sum", 3);
  EXPECT_EQ(rank_place(status.page(), 0), "rank 0, step 3, sum");
  status.operation_ends();
  status.set_step(4);
  EXPECT_EQ(rank_place(status.page(), 0), "rank 0, step 4, load weights");
  status.operation_begins("sum of an older group", 2);
  EXPECT_EQ(rank_place(status.page(), 0), "rank 0, step 4, sum of an older group");
  status.report_error(3, "one line", true);
  EXPECT_EQ(status.page().outcome, Outcome::kPeerError);
}

/// Runs `body` as a rank of `folder` in a process of its own; gives its exit status or 128 + signal.
template <typename Body>
pid_t start_rank(const LaunchFolder& folder, const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    RankStatus status(folder.path(), 0);
    body(status);
    _exit(0);
  }
  return child;
}

int end_of(pid_t child) {
  int status = 0;
  for (int i = 0; i < 500; ++i) {
    if (waitpid(child, &status, WNOHANG) == child) {
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

TEST(RankStatus, BeatsAndWritesToTheLaunchersPipes) {
  const LaunchFolder folder(1);
  const int reader = open(output_pipe_path(folder.path()).c_str(), O_RDWR | O_NONBLOCK);
  const int errors = open(error_pipe_path(folder.path()).c_str(), O_RDWR | O_NONBLOCK);
  const pid_t child = start_rank(folder, [](RankStatus& status) {
    status.step_has_ended(2);
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, "hello", 5);
    std::this_thread::sleep_for(milliseconds(1000));
    status.report_finished(130);
  });
  EXPECT_EQ(end_of(child), 0);
  EXPECT_GE(folder.rank(0).heartbeat, 3U);
  EXPECT_EQ(folder.rank(0).pid, child);
  EXPECT_EQ(folder.rank(0).finished_steps, 2);
  EXPECT_EQ(folder.rank(0).outcome, Outcome::kFinished);
  EXPECT_EQ(folder.rank(0).exit_code, 130);
  std::array<char, 16> text{};
  EXPECT_EQ(read(reader, text.data(), text.size()), 5);
  EXPECT_STREQ(text.data(), "hello");
  close(reader);
  close(errors);
}

TEST(RankStatus, EndsTheRankWhenTheLauncherIsGone) {
  const LaunchFolder folder(1);
  const int reader = open(output_pipe_path(folder.path()).c_str(), O_RDWR | O_NONBLOCK);
  const int errors = open(error_pipe_path(folder.path()).c_str(), O_RDWR | O_NONBLOCK);
  const pid_t launcher = fork();
  if (launcher == 0) {
    pause();
    _exit(0);
  }
  folder.launcher().pid = launcher;
  const pid_t child = start_rank(
      folder, [](RankStatus&) { std::this_thread::sleep_for(std::chrono::seconds(60)); });
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "the rank must live as long as its launcher";
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  EXPECT_EQ(end_of(child), 128 + SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(folder.path()));
  close(reader);
  close(errors);
}

}  // namespace
}  // namespace longhaul::dist
