// Writes one token store file: samples are streamed to disk as they come, the tables follow at the
// end, and the file takes its final name only when it is whole and synced.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/row_reader.h"
#include "data/store_format.h"
#include "data/token_store.h"

namespace longhaul::data {

/// Destroyed before finish(), it removes what it wrote. Failures to write are SystemError with the
/// hint --cache_dir.
class StoreWriter {
 public:
  /// Writes beside `path` under `temporary`, which is replaced.
  StoreWriter(std::filesystem::path path, std::filesystem::path temporary);
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;
  ~StoreWriter();

  /// Adds a row of data file number `file` with its samples (none when it is left out for its
  /// length).
  void add_row(std::uint32_t file, const RowRef& row,
               std::span<const text::TokenizedSample> samples);

  [[nodiscard]] std::uint64_t num_tokens() const { return header_.num_tokens; }

  /// Writes tables and description, syncs, renames.
  void finish(const StoreMeta& meta);

 private:
  class Sink;

  std::filesystem::path path_;
  std::unique_ptr<Sink> sink_;
  StoreHeader header_;
  std::vector<SampleRecord> samples_;
  std::vector<RowRecord> rows_;
};

}  // namespace longhaul::data
