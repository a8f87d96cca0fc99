#include "data/store_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace longhaul::data {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{50};
constexpr std::chrono::seconds kGrace{3};    // for the process that should build
constexpr std::chrono::seconds kNotice{15};  // between lines while waiting

/// An advisory lock on a file of its own; the kernel drops it when the process ends, however it
/// ends.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (fd_ < 0) {
      throw base::SystemError({.where = path.string(),
                               .what = "cannot create: " + std::generic_category().message(errno),
                               .hint = "Choose another folder with --cache_dir"});
    }
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() { ::close(fd_); }

  /// True when this process holds the lock now. SystemError on a file system without locks.
  [[nodiscard]] bool try_lock(const std::filesystem::path& path) const {
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      return true;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) {
      throw base::SystemError({.where = path.string(),
                               .what = "cannot lock: " + std::generic_category().message(errno),
                               .hint = "Choose a folder on another file system with --cache_dir"});
    }
    return false;
  }

 private:
  int fd_;
};

void make_cache_folder(const std::filesystem::path& folder) {
  try {
    base::make_folder(folder);
  } catch (const base::SystemError& error) {
    base::Problem problem = error.problems().front();
    problem.hint = "Choose another folder with --cache_dir";
    throw base::SystemError(problem);
  }
}

/// The store at `path` when it is whole and for this key.
std::shared_ptr<const StoreFile> open_for_key(const std::filesystem::path& path,
                                              const std::string& key, std::string& fault) {
  auto store = StoreFile::open(path, fault);
  if (store != nullptr && store->meta().key != key) {
    fault = "it was made for other data";
    return nullptr;
  }
  return store;
}

/// Which file lies at a path; a damaged one is checked once, not at every poll.
struct FileIdentity {
  std::uint64_t inode = 0;
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;

  bool operator==(const FileIdentity&) const = default;
};

FileIdentity identity_of(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return {};
  }
  return {
      .inode = info.st_ino, .seconds = info.st_mtim.tv_sec, .nanoseconds = info.st_mtim.tv_nsec};
}

std::shared_ptr<const StoreFile> build_now(const CacheRequest& request, const BuildStore& build,
                                           const std::filesystem::path& path) {
  // Only the lock's holder writes this name, so a left-over of a crash is simply replaced.
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  {
    StoreWriter writer(path, temporary);
    StoreMeta meta = build(writer);
    meta.key = request.key;
    writer.finish(meta);
  }
  std::string fault;
  auto store = open_for_key(path, request.key, fault);
  if (store == nullptr) {
    throw base::SystemError({.where = path.string(),
                             .what = "the tokens just written cannot be read back: " + fault,
                             .hint = "Check the disk, or choose another folder with --cache_dir"});
  }
  return store;
}

}  // namespace

std::filesystem::path store_path(const std::filesystem::path& folder, const std::string& key) {
  return folder / fmt::format("tokens-{}.store", base::checksum_text(key));
}

std::shared_ptr<const StoreFile> open_or_build(const CacheRequest& request,
                                               const BuildStore& build) {
  const std::filesystem::path path = store_path(request.folder, request.key);
  std::string fault;
  if (auto store = open_for_key(path, request.key, fault)) {
    return store;  // also from a folder that cannot be written
  }
  FileIdentity judged = identity_of(path);
  make_cache_folder(request.folder);
  std::filesystem::path lock_path = path;
  lock_path += ".lock";
  FileLock lock(lock_path);
  const auto started = Clock::now();
  auto next_notice = started + kNotice;
  while (true) {
    const bool may_build = request.builds_first || Clock::now() - started >= kGrace;
    // Holding the lock before looking: nobody can publish between the look and the build.
    const bool locked = may_build && lock.try_lock(lock_path);
    if (const FileIdentity now = identity_of(path); now != judged) {
      if (auto store = open_for_key(path, request.key, fault)) {
        return store;
      }
      judged = now;
    }
    if (locked) {
      if (fault != "missing") {
        base::log_line(
            fmt::format("data: {} is damaged ({}); tokenising again", path.string(), fault));
      }
      return build_now(request, build, path);
    }
    if (Clock::now() >= next_notice) {
      next_notice += kNotice;
      base::log_line(
          fmt::format("data: waiting for the process that tokenises into {}", path.string()));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace longhaul::data
