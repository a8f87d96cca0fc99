// Sizes of well-known models by name, for measurements with random weights: no folder, no file.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "config/model_config.h"

namespace longhaul::config {

/// The model's description with `num_layers` … `vocab_size` as its authors published them, for rows
/// of any length; nothing for another name.
std::optional<ModelConfig> find_named_model(std::string_view name);

/// Every name, by family and size.
std::span<const std::string_view> named_models();

}  // namespace longhaul::config
