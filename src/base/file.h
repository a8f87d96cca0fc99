// Files: read-only mappings, write-then-rename, folders that appear whole or not at all, checksums.
// Problems of the machine are SystemError (exit 3), missing or unreadable inputs UserError (exit
// 2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace longhaul::base {

/// A read-only memory mapping of a whole file; an empty file maps to an empty span.
class MappedFile {
 public:
  /// UserError naming `path` when it is missing, a folder or unreadable.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), size_};
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Tells the kernel that [offset, offset+size) will not be read again, so that it stops counting
  /// as resident.
  void drop_pages(std::size_t offset, std::size_t size) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Whole file as a string; UserError when missing or unreadable.
std::string read_file(const std::filesystem::path& path);

/// Writes `text` beside `path`, syncs it and renames it over `path`; SystemError on any failure.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// Appends to an open file descriptor and retries short writes; SystemError names `path` (full disk
/// included).
void write_fully(int fd, std::string_view bytes, const std::filesystem::path& path);

/// fsync of a file or folder by path; SystemError on failure.
void sync_path(const std::filesystem::path& path);

/// Creates a folder with its parents; SystemError when that fails (unwritable, a file in the way).
void make_folder(const std::filesystem::path& path);

/// A folder built under a temporary name (`.tmp-NAME` beside it); publish() syncs every file in it
/// and renames it. Destroyed unpublished, it removes what it wrote.
class PendingFolder {
 public:
  /// A left-over `.tmp-NAME` from an earlier crash is removed first.
  explicit PendingFolder(const std::filesystem::path& final_path);
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  ~PendingFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return temporary_; }
  /// Syncs files and folder, renames to the final path (which must not exist), syncs the parent.
  void publish();

 private:
  std::filesystem::path final_;
  std::filesystem::path temporary_;
  bool published_ = false;
};

/// XXH3-64 of the bytes, as 16 lower-case hexadecimal digits.
std::string checksum(std::span<const std::byte> bytes);
std::string checksum_text(std::string_view text);
/// XXH3-64 of a whole file (streamed; UserError when it cannot be read).
std::string checksum_file(const std::filesystem::path& path);

}  // namespace longhaul::base
