// Names of the modules and parameters of the supported decoder models, exactly as transformers
// names them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/shapes.h"

namespace longhaul::config {

inline constexpr std::string_view kEmbeddingModule = "model.embed_tokens";
inline constexpr std::string_view kHeadModule = "lm_head";

/// `model.layers.N.` followed by `inner`.
std::string layer_module(std::int64_t layer, std::string_view inner);

/// Every module path of the model in transformers' order, containers included (what PEFT matches
/// names against).
std::vector<std::string> all_module_names(const ModelConfig& model);

/// Every linear layer but lm_head, in order.
std::vector<std::string> linear_module_names(const ModelConfig& model);

/// True when `name` is `module` or lies inside it.
bool is_inside_module(std::string_view name, std::string_view module);

/// Modules that PEFT's `modules_to_save` would copy: paths that end in one of `endings`. UserError
/// naming an ending that selects no module with parameters.
std::vector<std::string> saved_modules(const ModelConfig& model,
                                       std::span<const std::string> endings);

/// Base parameters in checkpoint order, nothing trainable yet.
std::vector<ParamSpec> base_parameters(const ModelConfig& model);

}  // namespace longhaul::config
