#include "dist/rank_watch.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <string_view>
#include <system_error>

namespace longhaul::dist {
namespace {

using std::chrono::milliseconds;

/// How long a rank that has explained its end may be gone before the others follow; its starter
/// usually ends them first.
constexpr milliseconds kFollowAfter{2000};

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

double seconds(milliseconds time) { return std::chrono::duration<double>(time).count(); }

/// The N of a page's file name `rank-N`.
std::optional<std::int64_t> rank_of_page(const std::filesystem::path& path) {
  constexpr std::string_view kPrefix = "rank-";
  const std::string name = path.filename().string();
  if (name.rfind(kPrefix, 0) != 0) {
    return std::nullopt;
  }
  std::int64_t rank = 0;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + kPrefix.size(), end, rank);
  return result.ptr == end ? std::optional<std::int64_t>(rank) : std::nullopt;
}

}  // namespace

void RankWatch::look(const RankPage& page, milliseconds elapsed, const WatchLimits& limits,
                     bool is_judging) {
  if (has_ended_) {
    return;
  }
  const std::uint32_t heartbeat = page.heartbeat;
  silent_ = heartbeat == last_heartbeat_ ? silent_ + elapsed : milliseconds(0);
  last_heartbeat_ = heartbeat;
  if (!process_) {
    if (page.pid == 0) {
      if (silent_ > limits.start && is_judging) {
        stuck_ = fmt::format("did not start within {:.3g} s", seconds(limits.start));
      }
      return;
    }
    process_.emplace(page.pid);  // and it may have ended already
  }
  if (!process_->is_alive()) {
    has_ended_ = true;
    if (page.outcome == Outcome::kRunning && is_judging) {
      died_ns_ = now_ns();
    }
    return;
  }
  if (silent_ > limits.heartbeat && is_judging && stuck_.empty()) {
    stuck_ = fmt::format("gave no sign of life for {:.3g} s{}", seconds(limits.heartbeat),
                         process_->is_stopped() ? ": the process is stopped (SIGSTOP)" : "");
  }
}

void PeerWatch::find_new_peers() {
  if (static_cast<std::int64_t>(peers_.size()) + 1 >= local_ranks_) {
    return;
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::optional<std::int64_t> rank = rank_of_page(entry.path());
    if (rank && *rank != my_rank_ && peers_.count(*rank) == 0) {
      peers_.emplace(*rank, Peer{.page = SharedPage<RankPage>(entry.path()), .watch = {}});
    }
  }
}

std::optional<PeerWatch::Fault> PeerWatch::look(milliseconds elapsed) {
  find_new_peers();
  constexpr WatchLimits kLimits;
  for (auto& [rank, peer] : peers_) {
    peer.watch.look(*peer.page, elapsed, kLimits, true);
    if (peer.watch.died_ns()) {
      return Fault{.line = rank_place(*peer.page, rank) + ": the process ended without saying why"};
    }
    if (!peer.watch.stuck().empty()) {
      return Fault{.line = rank_place(*peer.page, rank) + ": " + peer.watch.stuck()};
    }
    const Outcome outcome = peer.page->outcome;
    if (peer.watch.has_ended() && outcome != Outcome::kFinished) {
      peer.gone_for += elapsed;
    }
    if (peer.gone_for > kFollowAfter) {
      return Fault{.line = {}};
    }
  }
  return std::nullopt;
}

void PeerWatch::end_stuck_peers() const {
  for (const auto& [rank, peer] : peers_) {
    if (!peer.watch.stuck().empty() && peer.watch.process()) {
      peer.watch.process()->send(SIGKILL);
    }
  }
}

}  // namespace longhaul::dist
