// The files of a model folder beside its weights: which of them belong to the model, and what a
// conversion changes in config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/dtype.h"
#include "base/file.h"

namespace longhaul::infer {

/// config, generation, tokenizer, template and licence files; never weights, logs or run files.
bool is_model_file(std::string_view name);

/// Copies bytes; UserError when `from` cannot be read, SystemError when `to` cannot be written.
void copy_whole_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// Copies every model file of `from` into `to`.
void copy_model_files(const std::filesystem::path& from, const std::filesystem::path& to);

/// What differs from the base's config.json.
struct ConfigChanges {
  std::optional<base::Dtype> dtype;
  std::optional<std::int64_t> max_position_embeddings;
  bool untie = false;
};
/// Rewrites config.json in place, keys in their order; without changes the file stays as it is.
void adjust_config(const std::filesystem::path& config_json, const ConfigChanges& changes);

/// Gives a finished folder its name. When a folder of that name exists, its files are replaced and
/// weight files of the model that it held before are removed.
void publish_model(base::PendingFolder& pending, const std::filesystem::path& final_folder);

}  // namespace longhaul::infer
