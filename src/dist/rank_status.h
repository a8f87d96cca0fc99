// What this rank tells the world about itself: where it is, that it lives, how it ended. Under our
// launcher it is a shared page that the launcher watches; otherwise private memory, so that callers
// need no cases. A thread of its own keeps the heartbeat and ends the process when its launcher or
// starter is gone: no rank outlives the job.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "dist/launch_folder.h"
#include "dist/operation_observer.h"
#include "dist/process_handle.h"
#include "dist/rank_watch.h"

namespace longhaul::dist {

/// What to do with a peer that is stuck: mpirun ends it when the others have gone, srun does not.
enum class StuckPeers { kLeaveToStarter, kKill };

class RankStatus final : public OperationObserver {
 public:
  /// No launcher: everything is kept in this process and nothing is watched.
  RankStatus();
  /// A rank of the launcher that owns `folder`: takes its output to the launcher's pipes and starts
  /// the heartbeat. SystemError when the folder is not usable.
  RankStatus(const std::filesystem::path& folder, std::int64_t rank);
  /// A rank of mpirun or srun, whose peers on this machine use the same `folder`. When one of them
  /// dies or is stuck, `on_peer_fault` gets the line to report (empty: it has been reported) on the
  /// heartbeat's thread, and this process ends.
  RankStatus(const std::filesystem::path& folder, std::int64_t rank, std::int64_t local_ranks,
             StuckPeers stuck_peers, std::function<void(const std::string& line)> on_peer_fault);
  RankStatus(const RankStatus&) = delete;
  RankStatus& operator=(const RankStatus&) = delete;
  ~RankStatus() override;

  /// True when a launcher of ours prints this rank's errors.
  [[nodiscard]] bool has_launcher() const { return launcher_.has_value(); }
  [[nodiscard]] const LauncherPage* launcher_page() const {
    return launcher_ ? &**launcher_ : nullptr;
  }
  [[nodiscard]] RankPage& page() const { return *page_; }

  /// The step in progress (from 1; 0 before the first).
  void set_step(std::int64_t step) { page_->step = step; }
  /// A step has ended on this rank; from now on a stop request finishes the step in progress.
  void step_has_ended(std::int64_t step);
  /// What the rank is busy with outside of collectives: `load weights`, `step`, `save checkpoint`.
  void set_activity(std::string_view activity) { page_->activity.set(activity); }

  /// How the rank ends; the first record stays. Without a launcher nobody reads it: print the lines
  /// yourself.
  void report_error(int exit_code, std::string_view lines, bool is_peers_fault);
  void report_finished(int exit_code);

  void operation_begins(std::string_view name, std::int64_t step) noexcept override;
  void operation_ends() noexcept override;
  void rank_aborts(const std::string& line) noexcept override;

 private:
  void start_heartbeat();
  void keep_heartbeat(const std::stop_token& stop);
  void check_starters() const;
  void check_peers();

  std::unique_ptr<RankPage> own_page_;
  std::optional<SharedPage<RankPage>> shared_page_;
  std::optional<SharedPage<LauncherPage>> launcher_;
  RankPage* page_ = nullptr;
  std::filesystem::path folder_;
  std::int64_t rank_ = 0;
  ProcessHandle launcher_process_;
  ProcessHandle starter_process_;
  std::optional<PeerWatch> peers_;
  StuckPeers stuck_peers_ = StuckPeers::kLeaveToStarter;
  std::function<void(const std::string& line)> on_peer_fault_;
  int wake_ = -1;  // ends the heartbeat's wait
  std::jthread heartbeat_;
};

}  // namespace longhaul::dist
