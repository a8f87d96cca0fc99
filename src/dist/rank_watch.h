// One rank seen from outside through its page: did it come up, does its heart beat, has it ended
// without a word. Used by the launcher for all ranks, and by ranks of mpirun or srun, which have no
// launcher of ours, for one another.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "dist/launch_folder.h"
#include "dist/process_handle.h"

namespace longhaul::dist {

struct WatchLimits {
  std::chrono::milliseconds heartbeat{10'000};  // silence after which a rank is stuck
  std::chrono::milliseconds start{180'000};     // time to come up
};

/// Time counts as it is handed in, so that a watcher that was suspended itself does not blame the
/// rank.
class RankWatch {
 public:
  /// Looks at the page, `elapsed` after the last look. New faults are found only while
  /// `is_judging`: once a job is being ended, deaths mean nothing.
  void look(const RankPage& page, std::chrono::milliseconds elapsed, const WatchLimits& limits,
            bool is_judging);

  [[nodiscard]] const std::optional<ProcessHandle>& process() const { return process_; }
  [[nodiscard]] bool has_ended() const { return has_ended_; }
  [[nodiscard]] bool is_running() const { return process_ && process_->is_alive(); }
  /// Steady-clock time at which it was found dead without having recorded an outcome.
  [[nodiscard]] std::optional<std::int64_t> died_ns() const { return died_ns_; }
  /// Why it counts as stuck, or empty.
  [[nodiscard]] const std::string& stuck() const { return stuck_; }

 private:
  std::optional<ProcessHandle> process_;
  std::uint32_t last_heartbeat_ = 0;
  std::chrono::milliseconds silent_{0};
  bool has_ended_ = false;
  std::optional<std::int64_t> died_ns_;
  std::string stuck_;
};

/// The other ranks of this machine whose pages lie in one folder.
class PeerWatch {
 public:
  PeerWatch(std::filesystem::path folder, std::int64_t my_rank, std::int64_t local_ranks)
      : folder_(std::move(folder)), my_rank_(my_rank), local_ranks_(local_ranks) {}

  /// What a look has found: a line that names the rank at fault, or an empty line when that rank
  /// has explained itself.
  struct Fault {
    std::string line;
  };
  std::optional<Fault> look(std::chrono::milliseconds elapsed);
  /// Kills a peer that is stuck, so that its starter sees it end.
  void end_stuck_peers() const;

 private:
  struct Peer {
    SharedPage<RankPage> page;
    RankWatch watch;
    std::chrono::milliseconds gone_for{0};
  };
  void find_new_peers();

  std::filesystem::path folder_;
  std::int64_t my_rank_;
  std::int64_t local_ranks_;
  std::map<std::int64_t, Peer> peers_;
};

}  // namespace longhaul::dist
