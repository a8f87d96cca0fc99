// The data of a run, ready to train: resolves --dataset and --val_dataset, has their tokens made or
// found, shuffles and splits rows, and refuses sets that cannot train anything. Every process of a
// run calls load_datasets and gets the same result; they meet at the cache folder only, never in a
// collective.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset_spec.h"
#include "data/row_report.h"
#include "data/token_store.h"
#include "data/tokenize_set.h"

namespace longhaul::data {

/// What the environment decides; read by cli only.
struct DataEnvironment {
  std::filesystem::path cache_dir;  // used when --cache_dir is not given
  DatasetPlaces places;             // custom_dataset_info is taken from the options
};

struct DatasetReport {
  std::int64_t max_length = 0;  // limit of a sample: row length with packing, if smaller
  RowReport train_rows;         // of --dataset, before any split
  std::optional<RowReport> validation_rows;  // of --val_dataset
  bool split = false;                        // the validation set was split off --dataset
  /// Names the data and their order for comparing runs: contents (not paths), options, seeds.
  std::string fingerprint;

  /// For the start-up print.
  [[nodiscard]] std::vector<std::string> lines() const;
};

struct Datasets {
  TokenStore train;
  std::optional<TokenStore> validation;
  DatasetReport report;
  /// Rows (indices into the store file's rows) that the split took for validation, in the
  /// validation set's order.
  std::vector<std::int64_t> split_rows;
};

/// Loads everything that training needs.
///
/// Shuffling  --dataset_shuffle orders the rows of all data sets together by --data_seed
/// Split      --split_dataset_ratio: max(1, floor(ratio · rows)) rows, drawn by --data_seed with
/// --dataset_shuffle, else
///            the last ones; validation rows stay in file order
/// Errors     UserError: data sets not found, bad rows under --strict, no row or no target token
/// left, a column of
///            --columns that no row has; SystemError: the cache folder cannot be written
Datasets load_datasets(const config::Config& config, const Encoding& encoding,
                       const DataEnvironment& environment);

/// Writes the original rows of a split as JSON Lines (val_dataset.jsonl of the run folder).
void write_split_rows(const Datasets& datasets, const std::filesystem::path& file);

/// The longest sample that a run trains: max_length, or the row length with packing if that is
/// smaller.
std::int64_t sample_limit(const config::Config& config);

}  // namespace longhaul::data
