// Tiny models as folders on disk: config.json, weights from the tiny models' random ones, a
// byte-level tokenizer without merges, and adapters in PEFT's layout.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "config/shapes.h"
#include "model/parameters.h"

namespace longhaul::testing {

/// tokenizer.json of 48 characters, `<|im_start|>` (48) and `<|im_end|>` (49).
std::string tiny_tokenizer_json();

/// Random parameters (fp32) of a tiny model with a LoRA adapter of `modules_to_save`.
model::Parameters tiny_parameters(const config::ModelConfig& model, const config::LoraSpec& lora);
config::LoraSpec tiny_lora(const config::ModelConfig& model,
                           const std::vector<std::string>& modules_to_save = {});

/// Writes config.json, tokenizer.json and the base weights; several shards when asked for. A tied
/// model's files hold no head.
void write_model_folder(const std::filesystem::path& folder, const config::ModelConfig& model,
                        const model::Parameters& parameters, base::Dtype dtype,
                        std::int64_t shards = 1);
/// Writes adapter_config.json and adapter_model.safetensors.
void write_adapter_folder(const std::filesystem::path& folder, const std::string& base_model,
                          const config::LoraSpec& lora, const model::Parameters& parameters);

}  // namespace longhaul::testing
