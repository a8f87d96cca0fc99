#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace longhaul::base {
namespace {

namespace fs = std::filesystem;

std::string errno_text(int error) { return std::generic_category().message(error); }

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  [[nodiscard]] int get() const { return fd_; }
  /// Closes now and tells whether that succeeded (a late write error shows up here).
  [[nodiscard]] bool close_now() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

Descriptor open_for_reading(const fs::path& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    throw UserError(Problem{.where = path.string(), .what = "cannot open: " + errno_text(errno)});
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || S_ISDIR(info.st_mode)) {
    throw UserError(Problem{
        .where = path.string(), .what = "not a file", .got = "a folder", .expected = "a file"});
  }
  return Descriptor(::dup(fd.get()));
}

[[noreturn]] void fail_writing(const fs::path& path, std::string_view action, int error) {
  std::string hint;
  if (error == ENOSPC || error == EDQUOT) {
    hint = "Free space on that disk or choose another folder";
  } else if (error == EFBIG) {
    hint = "Raise the limit on the size of files (ulimit -f) or choose another file system";
  }
  throw SystemError({.where = path.string(),
                     .what = fmt::format("cannot {}: {}", action, errno_text(error)),
                     .hint = hint});
}

struct HashStateDeleter {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

std::string hex64(std::uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const Descriptor fd = open_for_reading(path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    throw UserError(Problem{.where = path.string(), .what = "cannot read: " + errno_text(errno)});
  }
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) {
    return;
  }
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapped == MAP_FAILED) {
    throw UserError(Problem{.where = path.string(), .what = "cannot map: " + errno_text(errno)});
  }
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

void MappedFile::drop_pages(std::size_t offset, std::size_t size) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = std::min(offset + size, size_) / page * page;
  if (data_ != nullptr && end > begin) {
    ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
  }
}

std::string read_file(const fs::path& path) {
  const Descriptor fd = open_for_reading(path);
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw UserError(Problem{.where = path.string(), .what = "cannot read: " + errno_text(errno)});
    }
    if (got == 0) {
      return text;
    }
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

void write_fully(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      fail_writing(path, "write", errno);
    }
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  const fs::path temporary =
      path.parent_path() / fmt::format(".{}.tmp-{}", path.filename().string(), ::getpid());
  Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) {
    fail_writing(path, "create", errno);
  }
  try {
    write_fully(fd.get(), text, path);
    if (::fsync(fd.get()) != 0) {
      fail_writing(path, "sync", errno);
    }
    if (!fd.close_now()) {
      fail_writing(path, "close", errno);
    }
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      fail_writing(path, "rename into place", errno);
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_path(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void sync_path(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || (::fsync(fd.get()) != 0 && errno != EINVAL)) {
    fail_writing(path, "sync", errno);
  }
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    fail_writing(path, "create the folder", error.value());
  }
  if (!fs::is_directory(path, error)) {
    throw SystemError({.where = path.string(), .what = "not a folder"});
  }
}

PendingFolder::PendingFolder(const fs::path& final_path)
    : final_(final_path),
      temporary_(final_path.parent_path() / (".tmp-" + final_path.filename().string())) {
  std::error_code error;
  fs::remove_all(temporary_, error);
  make_folder(temporary_);
}

PendingFolder::~PendingFolder() {
  if (!published_) {
    std::error_code error;
    fs::remove_all(temporary_, error);
  }
}

void PendingFolder::publish() {
  LONGHAUL_ASSERT(!published_, "a folder is published once");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(temporary_)) {
    if (entry.is_regular_file() || entry.is_directory()) {
      sync_path(entry.path());
    }
  }
  sync_path(temporary_);
  if (::rename(temporary_.c_str(), final_.c_str()) != 0) {
    fail_writing(final_, "rename into place", errno);
  }
  published_ = true;
  sync_path(final_.has_parent_path() ? final_.parent_path() : fs::path("."));
}

std::string checksum(std::span<const std::byte> bytes) {
  return hex64(XXH3_64bits(bytes.data(), bytes.size()));
}

std::string checksum_text(std::string_view text) {
  return hex64(XXH3_64bits(text.data(), text.size()));
}

std::string checksum_file(const fs::path& path) {
  const Descriptor fd = open_for_reading(path);
  const std::unique_ptr<XXH3_state_t, HashStateDeleter> state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  std::string buffer(1 << 20, '\0');
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw UserError(Problem{.where = path.string(), .what = "cannot read: " + errno_text(errno)});
    }
    if (got == 0) {
      return hex64(XXH3_64bits_digest(state.get()));
    }
    XXH3_64bits_update(state.get(), buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace longhaul::base
