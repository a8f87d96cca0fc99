#include "dist/probe_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace longhaul::dist_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool holds_within(seconds patience, const std::function<bool()>& condition) {
  const auto until = Clock::now() + patience;
  while (!condition()) {
    if (Clock::now() > until) {
      return false;
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
  return true;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ProbeRun::ProbeRun(const Words& words, const std::map<std::string, std::string>& variables,
                   const Words& before, int output_fd) {
  std::string name = "/tmp/probe-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("no temporary folder");
  }
  folder_ = name;
  fs::create_directories(folder_ / "pids");
  fs::create_directories(folder_ / "tmp");
  Words command = before;
  command.push_back(std::string(LONGHAUL_BINARY_DIR) + "/tests/dist/dist_probe");
  command.insert(command.end(), words.begin(), words.end());
  command.push_back("pids=" + (folder_ / "pids").string());
  // HOME and nothing that an outer launcher or user may have set.
  Words environment{"PATH=" + std::string(std::getenv("PATH")), "HOME=/tmp",
                    "TMPDIR=" + (folder_ / "tmp").string()};
  for (const auto& [variable, value] : variables) {
    environment.push_back(fmt::format("{}={}", variable, value));
  }
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<char*> values = pointers_to(environment);
  const std::string out = (folder_ / "out").string();
  const std::string err = (folder_ / "err").string();
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(output_fd >= 0 ? output_fd : open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    execvpe(arguments[0], arguments.data(), values.data());
    _exit(127);
  }
}

ProbeRun::~ProbeRun() {
  if (!has_ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const pid_t rank : rank_pids()) {
    kill(rank, SIGKILL);
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

bool ProbeRun::shows(const std::string& text, seconds patience) {
  return holds_within(patience,
                      [&] { return read_text(folder_ / "out").find(text) != std::string::npos; });
}

bool ProbeRun::complains(const std::string& text, seconds patience) {
  return holds_within(patience,
                      [&] { return read_text(folder_ / "err").find(text) != std::string::npos; });
}

bool ProbeRun::has_rank(int rank, seconds patience) const {
  const fs::path file = folder_ / "pids" / std::to_string(rank);
  return holds_within(patience, [&] { return read_text(file).find('\n') != std::string::npos; });
}

void ProbeRun::send(int signal) const { kill(pid_, signal); }
void ProbeRun::send_to_group(int signal) const { kill(-pid_, signal); }
/// Ranks come up one after the other: one that says something does not mean that all are there.
void ProbeRun::send_to_rank(int rank, int signal) const {
  ASSERT_TRUE(has_rank(rank)) << rank;
  const std::string pid = read_text(folder_ / "pids" / std::to_string(rank));
  kill(static_cast<pid_t>(std::stol(pid)), signal);
}

ProbeResult ProbeRun::wait(seconds patience) {
  int status = 0;
  has_ended_ = holds_within(patience, [&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  ProbeResult result{
      .status = -1, .out = read_text(folder_ / "out"), .err = read_text(folder_ / "err")};
  if (has_ended_) {
    result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return result;
}

std::vector<pid_t> ProbeRun::rank_pids() const {
  std::vector<pid_t> pids;
  for (const auto& entry : fs::directory_iterator(folder_ / "pids")) {
    const std::string text = read_text(entry.path());
    if (!text.empty()) {
      pids.push_back(static_cast<pid_t>(std::stol(text)));
    }
  }
  return pids;
}

bool ProbeRun::all_ranks_gone() const {
  constexpr seconds kPatience{10};
  return holds_within(kPatience, [&] {
    for (const pid_t pid : rank_pids()) {
      if (kill(pid, 0) == 0) {
        return false;
      }
    }
    return true;
  });
}

bool ProbeRun::leaves_nothing_behind() const {
  constexpr seconds kPatience{5};
  return holds_within(kPatience, [&] { return fs::is_empty(folder_ / "tmp"); });
}

ProbeResult run_with_fault(const ProbeRun::Words& words,
                           const std::map<std::string, std::string>& variables,
                           std::chrono::seconds patience) {
  const std::string what = testing::PrintToString(words);
  ProbeRun run(words, variables);
  ProbeResult result = run.wait(patience);
  EXPECT_TRUE(run.all_ranks_gone()) << what;
  EXPECT_TRUE(run.leaves_nothing_behind()) << what;
  EXPECT_THAT(result.out, testing::HasSubstr("step 2\n")) << what;
  return result;
}

std::vector<std::string> error_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  const std::string prefix = "longhaul: error: ";
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line.rfind(prefix, 0) == 0 ? line.substr(prefix.size()) : "UNEXPECTED " + line);
  }
  return lines;
}

bool has_mpi() {
  return fs::exists(std::string(LONGHAUL_BINARY_DIR) + "/liblonghaul_mpi.so") &&
         (fs::exists("/usr/bin/mpirun") || fs::exists("/usr/bin/mpirun.openmpi"));
}

}  // namespace longhaul::dist_test
