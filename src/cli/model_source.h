// Which model `infer` and `export` work on: --model, or the base and the settings of a checkpoint's
// own files, with options given now on top.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "config/config.h"
#include "config/model_config.h"
#include "infer/loaded_model.h"

namespace longhaul::cli {

struct ModelSource {
  config::Config config;  // model, template, system, type and lengths completed
  config::ModelConfig model;
  std::filesystem::path
      checkpoint;  // the adapter's folder or the model's own; empty without args.json
  std::optional<infer::AdapterSource> adapter;
  std::string note;             // the adapter names another base model; else empty
  std::int64_t max_length = 0;  // longest prompt
  std::int64_t max_tokens = 0;  // prompt and answer

  [[nodiscard]] std::filesystem::path folder() const { return config.model.model; }
};

/// Reads adapter_config.json and args.json of --adapters (args.json of --model when it has one) and
/// the model's config.json. UserError when the folders are not what they should be.
ModelSource find_model(const config::Config& config);

}  // namespace longhaul::cli
