#include "data/dataset_info.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace longhaul::data {
namespace {

using base::OrderedJson;

// Entries that only describe the data set.
constexpr std::array<std::string_view, 4> kDescriptions = {"tags", "help", "huge_dataset",
                                                           "name_zh"};
constexpr std::array<std::string_view, 5> kHubKeys = {"ms_dataset_id", "hf_dataset_id",
                                                      "ms_revision", "hf_revision", "subsets"};

[[noreturn]] void fail(const std::string& where, const std::string& what,
                       const std::string& hint = {}) {
  throw base::UserError(base::Problem{.where = where, .what = what, .hint = hint});
}

std::string text_of(const OrderedJson& value, const std::string& key, const std::string& where) {
  if (!value.is_string()) {
    fail(where, fmt::format("\"{}\" is not text", key));
  }
  return value.get<std::string>();
}

void read_columns(const OrderedJson& value, const std::string& where, RowFormat& format) {
  if (!value.is_object()) {
    fail(where, "\"columns\" is not an object", "Write {\"column of the file\": \"query\"}");
  }
  for (const auto& [column, name] : value.items()) {
    format.columns[column] = text_of(name, "columns." + column, where);
  }
}

void read_messages(const OrderedJson& value, const std::string& where, RowFormat& format) {
  if (!value.is_object()) {
    fail(where, "\"messages\" is not an object");
  }
  const std::array<std::pair<std::string_view, std::string*>, 5> fields = {{
      {"role_key", &format.role_key},
      {"content_key", &format.content_key},
      {"user_role", &format.user_role},
      {"assistant_role", &format.assistant_role},
      {"system_role", &format.system_role},
  }};
  for (const auto& [key, text] : value.items()) {
    std::string* target = nullptr;
    for (const auto& [name, member] : fields) {
      target = key == name ? member : target;
    }
    if (target == nullptr) {
      fail(where, fmt::format("\"messages\" has the unknown key \"{}\"", key));
    }
    if (!text.is_null()) {
      *target = text_of(text, "messages." + key, where);
    }
  }
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
  for (const std::string_view candidate : names) {
    if (candidate == name) {
      return true;
    }
  }
  return false;
}

DatasetInfo read_entry(const OrderedJson& entry, const std::filesystem::path& folder,
                       const std::string& where) {
  if (!entry.is_object()) {
    fail(where, "not an object");
  }
  DatasetInfo info;
  for (const auto& [key, value] : entry.items()) {
    if (key == "dataset_name" || key == "name") {
      info.name = text_of(value, key, where);
    } else if (key == "dataset_path") {
      info.path = text_of(value, key, where);
    } else if (key == "columns") {
      read_columns(value, where, info.format);
    } else if (key == "messages") {
      read_messages(value, where, info.format);
    } else if (key == "split" && (value == "train" || value == OrderedJson::array({"train"}))) {
      continue;  // a local file has one split
    } else if (!contains(kDescriptions, key) && !contains(kHubKeys, key)) {
      fail(where, fmt::format("unknown key \"{}\"", key));
    }
  }
  if (info.path.is_relative() && !info.path.empty()) {
    info.path = folder / info.path;
  }
  if (info.name.empty()) {
    info.name = info.path.filename().string();
  }
  return info;
}

}  // namespace

std::vector<DatasetInfo> read_dataset_info(const std::filesystem::path& file) {
  const std::string text = base::read_file(file);
  const OrderedJson json = base::parse_ordered_json(text, file.string());
  if (!json.is_array()) {
    fail(file.string(), "not a list of entries",
         "Write [{\"dataset_name\": …, \"dataset_path\": …, \"columns\": {…}}]");
  }
  std::vector<DatasetInfo> infos;
  for (std::size_t i = 0; i < json.size(); ++i) {
    DatasetInfo info =
        read_entry(json[i], file.parent_path(), fmt::format("{}: entry {}", file.string(), i + 1));
    infos.push_back(std::move(info));
  }
  return infos;
}

}  // namespace longhaul::data
