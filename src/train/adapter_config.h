// adapter_config.json as PEFT writes and reads it, and PEFT's names of the tensors in
// adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace longhaul::train {

constexpr const char* kAdapterConfigFile = "adapter_config.json";
constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";

/// What a LoRA adapter is.
struct AdapterConfig {
  /// Absolute folder or hub id; empty when unknown.
  std::string base_model{};
  std::string revision{};
  std::int64_t rank = 8;
  double alpha = 32;
  double dropout = 0.0;
  bool use_rslora = false;
  /// Module name endings such as `q_proj`; empty when target_regex is given.
  std::vector<std::string> target_modules{};
  /// A regular expression for whole module names, or PEFT's word `all-linear`.
  std::optional<std::string> target_regex{};
  std::vector<std::string> modules_to_save{};
};

/// Writes `folder/adapter_config.json` with keys that every PEFT since rsLoRA knows.
void write_adapter_config(const std::filesystem::path& folder, const AdapterConfig& config);
/// Reads it; UserError names each key whose value would change the mathematics in a way that is not
/// supported (DoRA, biases, rank patterns …), and anything missing or mistyped.
AdapterConfig read_adapter_config(const std::filesystem::path& folder);

/// True when two folders or hub ids may be the same model by their names: the last part, links
/// followed or not; `Org/Name` for a snapshot in a hub's cache (`models--Org--Name/snapshots/…`).
/// An empty one says nothing and is the same as any.
bool is_same_model(const std::string& one, const std::string& other);

enum class AdapterPart { kLoraA, kLoraB, kSaved };
/// What one tensor of adapter_model.safetensors is.
struct AdapterTensor {
  AdapterPart part = AdapterPart::kSaved;
  /// Module (`model.layers.0.self_attn.q_proj`) of a LoRA matrix, parameter (`lm_head.weight`) of a
  /// saved module.
  std::string target;
};
/// `base_model.model.MODULE.lora_A.weight`, `….lora_B.weight`, or `base_model.model.PARAMETER`.
std::string adapter_tensor_name(AdapterPart part, const std::string& target);
/// The reverse; nothing for a name that no supported adapter has.
std::optional<AdapterTensor> parse_adapter_tensor_name(const std::string& name);

}  // namespace longhaul::train
