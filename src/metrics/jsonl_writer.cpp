#include "metrics/jsonl_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "metrics/jsonl_reader.h"
#include "metrics/record_json.h"

namespace longhaul::metrics {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, std::string_view action) {
  throw base::SystemError(
      {.where = path.string(),
       .what = std::string(action) + ": " + std::generic_category().message(errno)});
}

/// Bytes up to and including the last line break.
off_t whole_lines(const fs::path& path) {
  const base::MappedFile file(path);
  const auto last_break = file.text().rfind('\n');
  return last_break == std::string_view::npos ? 0 : static_cast<off_t>(last_break) + 1;
}

bool belongs_before(const LogLine& line, std::int64_t last_step) {
  if (const auto* step = std::get_if<StepRecord>(&line)) {
    return step->global_step <= last_step;
  }
  if (const auto* eval = std::get_if<EvalRecord>(&line)) {
    return eval->global_step <= last_step;
  }
  return false;
}

}  // namespace

JsonlWriter::JsonlWriter(const fs::path& path)
    : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ < 0) {
    fail(path_, "cannot open the log for writing");
  }
  if (::ftruncate(fd_, whole_lines(path_)) != 0) {
    const int error = errno;
    ::close(std::exchange(fd_, -1));
    errno = error;
    fail(path_, "cannot cut off the torn last line");
  }
}

JsonlWriter JsonlWriter::continue_after(const fs::path& path, std::int64_t last_step) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) {
    std::string kept;
    const std::string text = base::read_file(path);
    for_each_log_line(text, path.string(), [&](std::string_view line, const LogLine& record) {
      if (belongs_before(record, last_step)) {
        kept.append(line).append("\n");
      }
    });
    base::write_file_atomically(path, kept);
  }
  return JsonlWriter(path);
}

JsonlWriter::JsonlWriter(JsonlWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

JsonlWriter::~JsonlWriter() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void JsonlWriter::write(const StepRecord& record) { append(to_json(record).dump()); }
void JsonlWriter::write(const EvalRecord& record) { append(to_json(record).dump()); }
void JsonlWriter::write(const RunSummary& summary) { append(to_json(summary).dump()); }

void JsonlWriter::append(std::string_view line) {
  struct stat before {};
  if (::fstat(fd_, &before) != 0) {
    fail(path_, "cannot look at the log");
  }
  std::string whole(line);
  whole += '\n';
  try {
    base::write_fully(fd_, whole, path_);
  } catch (...) {
    if (::ftruncate(fd_, before.st_size) != 0) {
      // Nothing more can be done on a failing disk; the reader tolerates a torn last line.
    }
    throw;
  }
}

}  // namespace longhaul::metrics
