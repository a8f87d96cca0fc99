// `--dataset` and `--val_dataset` values → the files to read. A value is
// `[hf::|ms::]id_or_path[:subset][#N]`; a path that exists wins over the syntax; a name without `/`
// may also be NAME.jsonl or NAME.json here or in the data folder, or an entry of
// `--custom_dataset_info`. A folder stands for the .jsonl and .json files in it, by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/row_format.h"

namespace longhaul::data {

/// The parts of a value; parsing looks at the file system only through `exists`.
struct DatasetSpec {
  std::string hub;  // "hf", "ms" or empty
  std::string id;   // path, name or hub id
  std::string subset;
  std::optional<std::int64_t> take;  // #N
};

/// Where names are looked up.
struct DatasetPlaces {
  std::filesystem::path here = ".";
  std::filesystem::path data_folder;          // $LONGHAUL_DATA, may be empty
  std::filesystem::path custom_dataset_info;  // may be empty
};

/// One value, resolved.
struct DataSource {
  std::string spec;                          // as given
  std::vector<std::filesystem::path> files;  // absolute
  std::optional<std::int64_t> take;
  RowFormat format;
};

/// Splits a value; UserError for an `#N` that is no positive number. `places.here` is where
/// relative paths start.
DatasetSpec parse_dataset_spec(const std::string& value, const std::string& option,
                               const DatasetPlaces& places);

/// Resolves all values of `option` ("--dataset"); `columns` is `--columns`, which an entry of the
/// custom file extends. UserError that lists every value that cannot be found, is a hub id (not
/// available yet) or has an unknown file type.
std::vector<DataSource> resolve_datasets(std::span<const std::string> values,
                                         const std::string& option, const DatasetPlaces& places,
                                         const std::map<std::string, std::string>& columns,
                                         bool pretraining);

}  // namespace longhaul::data
