// Appends records to logging.jsonl, one whole line per record, handed to the system before write()
// returns. A line that cannot be written whole (full disk) is taken back, so the file always ends
// at a line's end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "metrics/step_record.h"

namespace longhaul::metrics {

/// The writing side of logging.jsonl. Every fault of the disk is a SystemError naming the file.
class JsonlWriter {
 public:
  /// Opens `path` for appending, made when absent. A torn last line (the end of a crash) is cut off
  /// first.
  explicit JsonlWriter(const std::filesystem::path& path);
  /// Opens the log of a run that goes on after step `last_step` in the same file: lines of later
  /// steps and the old summary are dropped first, for they will be written again.
  static JsonlWriter continue_after(const std::filesystem::path& path, std::int64_t last_step);
  JsonlWriter(JsonlWriter&& other) noexcept;
  JsonlWriter(const JsonlWriter&) = delete;
  JsonlWriter& operator=(const JsonlWriter&) = delete;
  JsonlWriter& operator=(JsonlWriter&&) = delete;
  ~JsonlWriter();

  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void write(const RunSummary& summary);

 private:
  void append(std::string_view line);

  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace longhaul::metrics
