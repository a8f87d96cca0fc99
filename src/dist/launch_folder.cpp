#include "dist/launch_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "dist/comm_error.h"

namespace longhaul::dist {
namespace {

[[noreturn]] void raise_file_error(const std::filesystem::path& path, const char* what) {
  throw base::SystemError(
      {.where = path.string(),
       .what = fmt::format("{}: {}", what, std::generic_category().message(errno)),
       .hint = "Set TMPDIR to a folder that can be written"});
}

/// Longer ones break the sockets that MPI makes inside.
constexpr std::size_t kMaxFolderLength = 60;

std::string temporary_root() {
  const char* chosen =
      std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): nothing writes the environment
  if (chosen != nullptr && chosen[0] == '/' && std::strlen(chosen) <= kMaxFolderLength) {
    return chosen;
  }
  return "/tmp";
}

}  // namespace

void SharedText::set(std::string_view text) noexcept {
  const std::uint32_t next = newest_.load(std::memory_order_relaxed) + 1;
  std::array<char, kBytes>& buffer = buffers_[next % kBuffers];
  const std::size_t bytes = std::min(text.size(), kBytes - 1);
  std::memcpy(buffer.data(), text.data(), bytes);
  buffer[bytes] = '\0';
  newest_.store(next, std::memory_order_release);
}

std::string SharedText::get() const {
  const std::array<char, kBytes>& buffer =
      buffers_[newest_.load(std::memory_order_acquire) % kBuffers];
  return {buffer.data(), strnlen(buffer.data(), kBytes)};
}

template <typename Page>
SharedPage<Page>::SharedPage(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) {
    raise_file_error(path, "cannot open the status page");
  }
  void* memory = MAP_FAILED;
  if (ftruncate(file, sizeof(Page)) == 0) {
    memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (memory == MAP_FAILED) {
    const int reason = errno;
    close(file);
    errno = reason;
    raise_file_error(path, "cannot map the status page");
  }
  close(file);
  page_ = static_cast<Page*>(memory);  // zero bytes are a valid page
}

template <typename Page>
SharedPage<Page>::~SharedPage() {
  if (page_ != nullptr) {
    munmap(page_, sizeof(Page));
  }
}

template class SharedPage<RankPage>;
template class SharedPage<LauncherPage>;

std::filesystem::path rank_page_path(const std::filesystem::path& folder, std::int64_t rank) {
  return folder / fmt::format("rank-{}", rank);
}
std::filesystem::path launcher_page_path(const std::filesystem::path& folder) {
  return folder / "launcher";
}
std::filesystem::path output_pipe_path(const std::filesystem::path& folder) {
  return folder / "stdout";
}
std::filesystem::path error_pipe_path(const std::filesystem::path& folder) {
  return folder / "stderr";
}

LaunchFolder::LaunchFolder(std::int64_t ranks) {
  std::string name = temporary_root() + "/longhaul-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    raise_file_error(name, "cannot make a temporary folder");
  }
  path_ = name;
  launcher_.emplace(launcher_page_path(path_));
  (*launcher_)->pid = getpid();
  ranks_.reserve(static_cast<std::size_t>(ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    ranks_.emplace_back(rank_page_path(path_, rank));
  }
  for (const std::filesystem::path& pipe : {output_pipe_path(path_), error_pipe_path(path_)}) {
    if (mkfifo(pipe.c_str(), S_IRUSR | S_IWUSR) != 0) {
      raise_file_error(pipe, "cannot make a pipe");
    }
  }
}

LaunchFolder::~LaunchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string rank_place(const RankPage& page, std::int64_t rank) {
  std::string what = page.is_in_operation != 0 ? page.operation.get() : page.activity.get();
  if (what.empty()) {
    what = "start";
  }
  return operation_place(static_cast<int>(rank), page.step, what);
}

void record_outcome(RankPage& page, Outcome outcome, int exit_code,
                    std::string_view lines) noexcept {
  if (page.outcome != Outcome::kRunning) {
    return;
  }
  const std::size_t bytes = std::min(lines.size(), page.text.size());
  std::memcpy(page.text.data(), lines.data(), bytes);
  page.text_bytes = static_cast<std::uint32_t>(bytes);
  page.exit_code = exit_code;
  page.outcome_ns =
      std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  page.outcome = outcome;  // last: readers look at the rest once this is set
}

std::vector<std::string> recorded_lines(const RankPage& page) {
  std::vector<std::string> lines;
  std::string line;
  for (const char c : std::string_view(page.text.data(), page.text_bytes)) {
    if (c == '\n') {
      lines.push_back(std::exchange(line, {}));
    } else {
      line += c;
    }
  }
  if (!line.empty()) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace longhaul::dist
