// Fills parameters: base weights from safetensors, new LoRA weights from the seed, adapters from
// their folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/safetensors.h"
#include "config/model_config.h"
#include "model/parameters.h"

namespace longhaul::model {

/// Reads every base weight of the registry, converting to the compute type; trained ones keep their
/// fp32 value. UserError (all found at once): missing, mis-shaped or unused tensors, unsupported
/// types, NaN or infinite values.
void load_base_weights(const std::filesystem::path& model_folder, Parameters& parameters);

/// The same checks by the files' headers alone (names, shapes, types), before any buffer is made.
void check_base_weights(const std::filesystem::path& model_folder,
                        std::span<const config::ParamSpec> registry);

/// Tells models apart that share a config.json: names, types, shapes and a sample of the values of
/// every tensor.
std::string weights_fingerprint(const std::filesystem::path& model_folder);

/// New adapters: A uniform in ±1/√K (Kaiming with a = √5) drawn by (seed, module, element), B zero.
void init_lora(std::uint64_t seed, Parameters& parameters);

/// Reads adapter_model.safetensors in PEFT's layout. UserError when tensors are missing, unknown or
/// mis-shaped (an adapter of another model), or not finite.
void load_adapter(const std::filesystem::path& adapter_folder, Parameters& parameters);

/// PEFT's name in adapter_model.safetensors of a parameter saved with the adapter.
std::string adapter_tensor_name(const config::ParamSpec& spec);

}  // namespace longhaul::model
