// The private folder through which a launcher and its ranks know of each other: one small shared
// page per rank (where it is, that it lives, how it ended), one of the launcher (is a stop wanted),
// and two pipes for the ranks' output.
//   FOLDER/launcher   FOLDER/rank-0 …   FOLDER/stdout   FOLDER/stderr
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace longhaul::dist {

/// How a rank ended, as it says itself.
enum class Outcome : std::int32_t {
  kRunning = 0,  // nothing said yet; a process that ends like this has died
  kFinished = 1,
  kError = 2,      // its own fault, `text` explains
  kPeerError = 3,  // another rank's fault
};

/// Text that one process writes and others read at any time: the newest of a few buffers.
class SharedText {
 public:
  void set(std::string_view text) noexcept;
  [[nodiscard]] std::string get() const;

 private:
  static constexpr std::size_t kBuffers = 4;
  static constexpr std::size_t kBytes = 120;
  std::atomic<std::uint32_t> newest_{0};
  std::array<std::array<char, kBytes>, kBuffers> buffers_{};
};

/// One rank's page. Zero bytes are its valid initial state.
struct RankPage {
  std::atomic<std::int32_t> pid{0};
  std::atomic<std::uint32_t> heartbeat{0};
  std::atomic<std::int64_t> step{0};
  std::atomic<std::int64_t> finished_steps{0};
  std::atomic<std::int32_t> is_in_operation{0};
  std::atomic<std::int32_t> stop_signal{0};  // a signal that this rank got directly
  std::atomic<Outcome> outcome{Outcome::kRunning};
  std::atomic<std::int32_t> exit_code{0};
  std::atomic<std::int64_t> outcome_ns{0};  // steady clock
  SharedText operation;
  SharedText activity;
  std::atomic<std::uint32_t> text_bytes{0};
  std::array<char, 32768> text{};
};

/// The launcher's page.
struct LauncherPage {
  std::atomic<std::int32_t> pid{0};
  std::atomic<std::int32_t> stop_requests{0};
  std::atomic<std::int32_t> stop_signal{0};
  std::atomic<std::int32_t> ignores_hangup{0};  // started with nohup: its ranks ignore SIGHUP too
};

/// A file of sizeof(Page) zero bytes mapped by every process that opens it.
template <typename Page>
class SharedPage {
 public:
  /// Creates the file when it is missing. SystemError when that or mapping fails.
  explicit SharedPage(const std::filesystem::path& path);
  SharedPage(SharedPage&& other) noexcept : page_(other.page_) { other.page_ = nullptr; }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  SharedPage& operator=(SharedPage&&) = delete;
  ~SharedPage();

  Page* operator->() const { return page_; }
  Page& operator*() const { return *page_; }

 private:
  Page* page_ = nullptr;
};

extern template class SharedPage<RankPage>;
extern template class SharedPage<LauncherPage>;

std::filesystem::path rank_page_path(const std::filesystem::path& folder, std::int64_t rank);
std::filesystem::path launcher_page_path(const std::filesystem::path& folder);
std::filesystem::path output_pipe_path(const std::filesystem::path& folder);
std::filesystem::path error_pipe_path(const std::filesystem::path& folder);

/// A new folder for one launch, readable by its owner only; removed with everything in it at the
/// end.
class LaunchFolder {
 public:
  /// Pages for `ranks` ranks and the two pipes. SystemError when the temporary folder cannot be
  /// written.
  explicit LaunchFolder(std::int64_t ranks);
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;
  ~LaunchFolder();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] LauncherPage& launcher() const { return **launcher_; }
  [[nodiscard]] RankPage& rank(std::int64_t rank) const {
    return *ranks_[static_cast<std::size_t>(rank)];
  }

 private:
  std::filesystem::path path_;
  std::optional<SharedPage<LauncherPage>> launcher_;
  std::vector<SharedPage<RankPage>> ranks_;
};

/// `rank 1, step 7, exchange q,k,v`: the operation that the rank is in, else what it is busy with.
std::string rank_place(const RankPage& page, std::int64_t rank);

/// Records how a rank ended; the first record stays. `lines` are joined by '\n'.
void record_outcome(RankPage& page, Outcome outcome, int exit_code,
                    std::string_view lines) noexcept;
std::vector<std::string> recorded_lines(const RankPage& page);

}  // namespace longhaul::dist
