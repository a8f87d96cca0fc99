// `--custom_dataset_info FILE`: ms-swift's dataset_info.json, a list of entries that give a local
// file or folder a name and say how its rows are to be read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/row_format.h"

namespace longhaul::data {

/// One entry; `path` is absolute or relative to the current folder (the file's own folder is
/// already in front).
struct DatasetInfo {
  std::string name;
  std::filesystem::path path;
  RowFormat format;
};

/// Entries of the file in order, named ones and unnamed ones (an unnamed one is called like its
/// path's last part). UserError `file:line` for malformed JSON, `file: entry N` for an entry that
/// cannot be used or has an unknown key.
std::vector<DatasetInfo> read_dataset_info(const std::filesystem::path& file);

}  // namespace longhaul::data
