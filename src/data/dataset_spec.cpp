#include "data/dataset_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "base/contains.h"
#include "base/json.h"
#include "base/path_state.h"
#include "data/dataset_info.h"
#include "data/row_fields.h"

namespace longhaul::data {
namespace {

using base::contains;

namespace fs = std::filesystem;
using base::Problem;
using base::UserError;

constexpr std::array<std::string_view, 2> kTypes = {".jsonl", ".json"};
// File types that hold data but cannot be read yet: refused, so that a folder is never read in
// part.
constexpr std::array<std::string_view, 9> kOtherTypes = {
    ".csv", ".tsv", ".parquet", ".arrow", ".gz", ".zst", ".xz", ".bz2", ".zip"};
// Descriptions that data folders carry beside their data.
constexpr std::array<std::string_view, 3> kNotData = {"dataset_info.json", "dataset_infos.json",
                                                      "state.json"};

fs::path absolute_path(const fs::path& path) {
  std::error_code error;
  const fs::path full = fs::absolute(path, error);
  return error ? path : full.lexically_normal();
}

/// Looks like a file of this machine rather than a hub id.
bool looks_like_path(const std::string& id) {
  const bool typed = contains(kTypes, fs::path(id).extension().string());
  return typed || id.starts_with('/') || id.starts_with("./") || id.starts_with("../") ||
         id.starts_with('~') || std::count(id.begin(), id.end(), '/') > 1;
}

std::int64_t parse_take(const std::string& digits, const std::string& value,
                        const std::string& option) {
  std::int64_t take = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, take);
  if (error != std::errc() || stop != end || take <= 0) {
    throw UserError(Problem{.where = option,
                            .what = "the number of rows behind # is not a positive number",
                            .got = value,
                            .expected = "FILE#1000"});
  }
  return take;
}

Problem unknown_type(const fs::path& file, const std::string& option) {
  return {.where = option,
          .what = "this file type is not available yet",
          .got = file.string(),
          .expected = ".jsonl or .json",
          .hint = "Write one JSON object per line into a .jsonl file"};
}

/// Resolves one value after another, sharing the custom file's entries.
class Resolver {
 public:
  Resolver(const std::string& option, const DatasetPlaces& places)
      : option_(option), places_(places) {
    if (!places.custom_dataset_info.empty()) {
      infos_ = read_dataset_info(places.custom_dataset_info);
    }
  }

  [[nodiscard]] DataSource resolve(const std::string& value, const RowFormat& format) const {
    const DatasetSpec spec = parse_dataset_spec(value, option_, places_);
    DataSource source{.spec = value, .files = {}, .take = spec.take, .format = format};
    if (!spec.hub.empty()) {
      fail_hub(value);
    }
    fs::path path = places_.here / spec.id;
    if (spec.id.empty() || !base::path_exists(path, option_)) {
      path = find_name(spec.id, value, source.format);
    }
    if (!spec.subset.empty()) {
      throw UserError(Problem{.where = option_,
                              .what = "a local file or folder has no subsets",
                              .got = value,
                              .hint = fmt::format("Leave out \":{}\"", spec.subset)});
    }
    source.files = files_of(absolute_path(path));
    for (const fs::path& file : source.files) {
      if (!base::is_valid_utf8(file.string())) {
        throw UserError(Problem{.where = option_,
                                .what = "the path of the file is not UTF-8 text",
                                .got = file.string(),
                                .hint = "Rename the file or its folder"});
      }
    }
    return source;
  }

 private:
  [[noreturn]] void fail_hub(const std::string& value) const {
    throw UserError(Problem{.where = option_,
                            .what = "data sets from a hub are not available yet",
                            .got = value,
                            .hint = "Download it and give the path of its .jsonl file"});
  }

  fs::path find_name(const std::string& id, const std::string& value, RowFormat& format) const {
    if (id.find('/') != std::string::npos) {
      if (looks_like_path(id)) {
        throw UserError(Problem{.where = option_, .what = "no such file or folder", .got = value});
      }
      throw UserError(
          Problem{.where = option_,
                  .what = "no such file or folder, and data sets from a hub are not available yet",
                  .got = value,
                  .hint = "Give the path of a .jsonl file"});
    }
    for (const fs::path& folder : {places_.here, places_.data_folder}) {
      if (folder.empty() || id.empty()) {
        continue;
      }
      for (const std::string_view ending : {std::string_view(""), kTypes[0], kTypes[1]}) {
        fs::path candidate = folder / (id + std::string(ending));
        if (base::path_exists(candidate, option_)) {
          return candidate;
        }
      }
    }
    return find_info(id, value, format);
  }

  fs::path find_info(const std::string& id, const std::string& value, RowFormat& format) const {
    for (const DatasetInfo& info : infos_) {
      if (info.name != id || id.empty()) {
        continue;
      }
      if (info.path.empty() || !base::path_exists(info.path, option_)) {
        throw UserError(Problem{
            .where = places_.custom_dataset_info.string(),
            .what = info.path.empty() ? "the entry has no dataset_path, and data sets from a hub "
                                        "are not available yet"
                                      : "the entry's dataset_path does not exist",
            .got = info.path.empty() ? id : info.path.string()});
      }
      const RowFormat given = format;
      format = info.format;
      format.pretraining = given.pretraining;
      for (const auto& [column, name] : given.columns) {
        format.columns[column] = name;  // the command line wins
      }
      return info.path;
    }
    throw UserError(Problem{
        .where = option_,
        .what = fmt::format("no such file or folder, no {0}.jsonl or {0}.json here{1}{2}", id,
                            places_.data_folder.empty() ? "" : " or in $LONGHAUL_DATA",
                            infos_.empty() ? "" : ", no such name in --custom_dataset_info"),
        .got = value});
  }

  [[nodiscard]] std::vector<fs::path> files_of(const fs::path& path) const {
    const fs::file_type type = base::look_at(path, option_);
    if (type != fs::file_type::directory) {
      if (type != fs::file_type::regular) {
        throw UserError(
            Problem{.where = option_, .what = "not a regular file", .got = path.string()});
      }
      if (!contains(kTypes, path.extension().string())) {
        throw UserError(unknown_type(path, option_));
      }
      return {path};
    }
    std::vector<fs::path> files;
    std::error_code error;
    for (fs::directory_iterator at(path, error); !error && at != fs::directory_iterator();
         at.increment(error)) {
      const fs::path& file = at->path();
      if (contains(kOtherTypes, file.extension().string())) {
        throw UserError(unknown_type(file, option_));
      }
      const bool data = contains(kTypes, file.extension().string()) &&
                        base::look_at(file, option_) == fs::file_type::regular;
      if (data && !contains(kNotData, file.filename().string())) {
        files.push_back(file);
      }
    }
    if (error) {
      throw UserError(
          Problem{.where = path.string(), .what = "cannot read the folder: " + error.message()});
    }
    if (files.empty()) {
      throw UserError(Problem{.where = option_,
                              .what = "the folder holds no .jsonl or .json file",
                              .got = path.string()});
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  const std::string& option_;
  const DatasetPlaces& places_;
  std::vector<DatasetInfo> infos_;
};

}  // namespace

DatasetSpec parse_dataset_spec(const std::string& value, const std::string& option,
                               const DatasetPlaces& places) {
  DatasetSpec spec;
  spec.id = value;
  const auto found = [&](const std::string& id) {
    return !id.empty() && base::path_exists(places.here / id, option);
  };
  if (found(spec.id)) {
    return spec;
  }
  if (const std::string prefix = lower_case(value.substr(0, 4));
      prefix == "hf::" || prefix == "ms::") {
    spec.hub = prefix.substr(0, 2);
    spec.id = value.substr(4);
  }
  if (const auto at = spec.id.rfind('#'); at != std::string::npos) {
    spec.take = parse_take(spec.id.substr(at + 1), value, option);
    spec.id.resize(at);
  }
  if (spec.hub.empty() && found(spec.id)) {
    return spec;
  }
  if (const auto at = spec.id.find(':'); at != std::string::npos) {
    spec.subset = spec.id.substr(at + 1);
    spec.id.resize(at);
  }
  return spec;
}

std::vector<DataSource> resolve_datasets(std::span<const std::string> values,
                                         const std::string& option, const DatasetPlaces& places,
                                         const std::map<std::string, std::string>& columns,
                                         bool pretraining) {
  const Resolver resolver(option, places);
  RowFormat format;
  format.columns = columns;
  format.pretraining = pretraining;
  std::vector<DataSource> sources;
  std::vector<Problem> problems;
  for (const std::string& value : values) {
    try {
      sources.push_back(resolver.resolve(value, format));
    } catch (const UserError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
  if (!problems.empty()) {
    throw UserError(std::move(problems));
  }
  return sources;
}

}  // namespace longhaul::data
