// Runs the probe program as a user would start `longhaul`, with its own environment, group of processes and temporary
// folder, and looks at what it leaves behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace longhaul::dist_test {

struct ProbeResult {
  int status = 0;  // exit status, or 128 + signal
  std::string out;
  std::string err;
};

/// One run of the probe; kills what is left of it when destroyed.
class ProbeRun {
 public:
  using Words = std::vector<std::string>;
  /// `before` goes in front of the probe's path (`mpirun -n 2`); variables are added to a clean environment.
  /// Standard output goes to `output_fd`, or to a file when that is −1.
  ProbeRun(const Words& words, const std::map<std::string, std::string>& variables,
           const Words& before = {}, int output_fd = -1);
  ProbeRun(const ProbeRun&) = delete;
  ProbeRun& operator=(const ProbeRun&) = delete;
  ~ProbeRun();

  /// True once standard output holds `text`.
  bool shows(const std::string& text, std::chrono::seconds patience = std::chrono::seconds(40));
  /// True once standard error holds `text`.
  bool complains(const std::string& text, std::chrono::seconds patience = std::chrono::seconds(40));
  /// True once the process of `rank` runs.
  [[nodiscard]] bool has_rank(int rank,
                              std::chrono::seconds patience = std::chrono::seconds(40)) const;
  void send(int signal) const;
  void send_to_group(int signal) const;
  void send_to_rank(int rank, int signal) const;
  /// Waits for the end; a run that does not end in time is killed and has status −1.
  ProbeResult wait(std::chrono::seconds patience = std::chrono::seconds(60));

  /// True when no rank is alive any more (looks for some seconds).
  [[nodiscard]] bool all_ranks_gone() const;
  /// True when the temporary folder of the run is empty (looks for some seconds).
  [[nodiscard]] bool leaves_nothing_behind() const;
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  [[nodiscard]] std::vector<pid_t> rank_pids() const;

  std::filesystem::path folder_;
  pid_t pid_ = 0;
  bool has_ended_ = false;
};

/// A run of `words` in which a rank goes wrong at step 3: expects that steps were done before, that
/// all ranks end, and that nothing is left behind.
ProbeResult run_with_fault(const ProbeRun::Words& words,
                           const std::map<std::string, std::string>& variables,
                           std::chrono::seconds patience);

/// The error lines in a text, without their prefix; everything else in it is an error of the test's.
std::vector<std::string> error_lines(const std::string& text);

/// True when ranks can be processes in this build.
bool has_mpi();

}  // namespace longhaul::dist_test
