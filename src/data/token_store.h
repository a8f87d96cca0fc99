// Tokenised samples on disk, mapped read-only: any number of processes share one file and touch
// only the pages of the samples they read. `StoreFile` is the file in the order of the data files;
// `TokenStore` is a view of it in the order in which training (or validation) counts its samples.
// Layout: store_format.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "data/row_report.h"
#include "data/store_format.h"
#include "text/tokenized_sample.h"

namespace longhaul::data {

/// What the file says about itself beside the tables.
struct StoreMeta {
  std::string key;  // everything the tokens depend on; compared before a file is used
  std::vector<std::string> files;  // data files, absolute
  RowReport report;

  bool operator==(const StoreMeta&) const = default;
};

base::OrderedJson meta_to_json(const StoreMeta& meta);
StoreMeta meta_from_json(const base::OrderedJson& json);

/// A whole, verified token store file.
class StoreFile {
 public:
  /// Maps and verifies `path` (every byte, at the speed of the checksum); nothing when it is
  /// missing or damaged, with the reason in `fault`.
  static std::shared_ptr<const StoreFile> open(const std::filesystem::path& path,
                                               std::string& fault);

  [[nodiscard]] const StoreMeta& meta() const { return meta_; }
  [[nodiscard]] std::span<const SampleRecord> samples() const { return samples_; }
  [[nodiscard]] std::span<const RowRecord> rows() const { return rows_; }
  [[nodiscard]] std::span<const std::int32_t> ids(const SampleRecord& sample) const;
  /// Bit i of byte i/8: position i is a target.
  [[nodiscard]] std::span<const std::byte> target_bits(const SampleRecord& sample) const;
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] std::int64_t num_targets() const { return num_targets_; }
  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  explicit StoreFile(base::MappedFile file) : file_(std::move(file)) {}
  /// Empty when everything fits.
  std::string verify();
  [[nodiscard]] bool tables_fit() const;

  base::MappedFile file_;
  std::span<const std::byte> tokens_;
  std::span<const SampleRecord> samples_;
  std::span<const RowRecord> rows_;
  std::int64_t num_tokens_ = 0;
  std::int64_t num_targets_ = 0;
  StoreMeta meta_;
};

/// Samples in the order in which a run numbers them. Cheap to copy parts of; reading is
/// thread-safe.
class TokenStore {
 public:
  /// `order[i]` = index in the file of sample i.
  TokenStore(std::shared_ptr<const StoreFile> file, std::vector<std::int64_t> order);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(order_.size()); }
  [[nodiscard]] std::int64_t length(std::int64_t sample) const { return record(sample).length; }
  [[nodiscard]] std::int64_t num_targets(std::int64_t sample) const {
    return record(sample).num_targets;
  }
  [[nodiscard]] std::span<const std::int32_t> ids(std::int64_t sample) const;
  /// Position `position` of the sample is a target.
  [[nodiscard]] bool is_target(std::int64_t sample, std::int64_t position) const;
  /// The sample as the encoder made it (labels not shifted).
  [[nodiscard]] text::TokenizedSample read(std::int64_t sample) const;
  /// `file:line` of the row it came from.
  [[nodiscard]] std::string origin(std::int64_t sample) const;

  [[nodiscard]] std::int64_t total_tokens() const { return total_tokens_; }
  [[nodiscard]] std::int64_t total_targets() const { return total_targets_; }
  [[nodiscard]] std::int64_t longest() const { return longest_; }
  [[nodiscard]] const StoreFile& file() const { return *file_; }

 private:
  [[nodiscard]] const SampleRecord& record(std::int64_t sample) const;

  std::shared_ptr<const StoreFile> file_;
  std::vector<std::int64_t> order_;
  std::int64_t total_tokens_ = 0;
  std::int64_t total_targets_ = 0;
  std::int64_t longest_ = 0;
};

}  // namespace longhaul::data
