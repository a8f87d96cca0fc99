#include "infer/model_files.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/json.h"
#include "base/path_state.h"

namespace longhaul::infer {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kNames = {"config.json",       "generation_config.json",
                                                    "added_tokens.json", "special_tokens_map.json",
                                                    "vocab.json",        "merges.txt"};
constexpr std::array<std::string_view, 4> kBeginnings = {"tokenizer", "chat_template", "LICENSE",
                                                         "NOTICE"};

[[noreturn]] void fail(const fs::path& path, const std::string& what,
                       const std::error_code& error) {
  throw base::SystemError({.where = path.string(),
                           .what = what + ": " + error.message(),
                           .hint = "Check free space and permissions"});
}

bool is_old_weight_file(const std::string& name) {
  return name.starts_with("model") &&
         (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
}

}  // namespace

bool is_model_file(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [name](std::string_view begin) { return name.starts_with(begin); });
}

void copy_whole_file(const fs::path& from, const fs::path& to) {
  base::write_file_atomically(to, base::read_file(from));
}

void copy_model_files(const fs::path& from, const fs::path& to) {
  std::error_code error;
  for (fs::directory_iterator at(from, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const fs::path name = at->path().filename();
    if (is_model_file(name.string()) &&
        base::look_at(at->path(), from.string()) == fs::file_type::regular) {
      copy_whole_file(at->path(), to / name);
    }
  }
  if (error) {
    throw base::UserError(
        {.where = from.string(), .what = "cannot read the folder: " + error.message()});
  }
}

void adjust_config(const fs::path& config_json, const ConfigChanges& changes) {
  if (!changes.dtype && !changes.max_position_embeddings && !changes.untie) {
    return;
  }
  base::OrderedJson json =
      base::parse_ordered_json(base::read_file(config_json), config_json.string());
  if (changes.dtype) {
    // transformers 5 writes `dtype`, earlier ones `torch_dtype`; both read the one that is there.
    const std::string name(base::dtype_name(*changes.dtype));
    const bool has_new = json.contains("dtype");
    if (has_new) {
      json["dtype"] = name;
    }
    if (!has_new || json.contains("torch_dtype")) {
      json["torch_dtype"] = name;
    }
  }
  if (changes.max_position_embeddings) {
    json["max_position_embeddings"] = *changes.max_position_embeddings;
  }
  if (changes.untie) {
    json["tie_word_embeddings"] = false;
  }
  base::write_file_atomically(config_json, json.dump(2) + "\n");
}

void publish_model(base::PendingFolder& pending, const fs::path& final_folder) {
  if (!base::path_exists(final_folder, "--output_dir")) {
    pending.publish();
    return;
  }
  std::error_code error;
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(pending.path())) {
    base::sync_path(entry.path());
    names.insert(entry.path().filename().string());
  }
  for (const std::string& name : names) {
    fs::rename(pending.path() / name, final_folder / name, error);
    if (error) {
      fail(final_folder / name, "cannot replace the file", error);
    }
  }
  std::set<fs::path> old_weights;
  for (const fs::directory_entry& entry : fs::directory_iterator(final_folder)) {
    const std::string name = entry.path().filename().string();
    if (is_old_weight_file(name) && names.count(name) == 0) {
      old_weights.insert(entry.path());
    }
  }
  for (const fs::path& path : old_weights) {
    fs::remove(path, error);
    if (error) {
      fail(path, "cannot remove a weight file of the earlier model", error);
    }
  }
  base::sync_path(final_folder);
}

}  // namespace longhaul::infer
