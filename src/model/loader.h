// Fills parameters: base weights from safetensors, new LoRA weights from the seed, adapters from
// their folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/safetensors.h"
#include "config/model_config.h"
#include "model/parameters.h"

namespace longhaul::model {

/// The weight files of a model folder, opened once for all that is asked of them.
class BaseWeights {
 public:
  using Registry = std::span<const config::ParamSpec>;

  /// Reads the files' headers; UserError when they are missing or damaged.
  explicit BaseWeights(const std::filesystem::path& model_folder);

  /// UserError (all found at once) by the headers alone: missing, mis-shaped or unused tensors,
  /// unsupported types. Needs no buffer.
  void check(Registry registry) const;
  /// Reads every base weight of the registry, converting to the compute type; trained ones keep
  /// their fp32 value. UserError as check, and for NaN or infinite values.
  void load(Parameters& parameters) const;
  /// Tells models apart that share a config.json: names, types, shapes and a sample of the values of
  /// every tensor.
  [[nodiscard]] std::string fingerprint() const;

 private:
  /// Takes a parameter's number, its tensor and whether nothing was wrong so far; gives what is
  /// wrong with it.
  using Visit = std::function<std::optional<base::Problem>(
      std::int64_t param, const base::TensorView& file, bool all_good)>;
  /// Visits every parameter that has values of its own; throws all problems together.
  void walk(Registry registry, const Visit& visit) const;
  [[nodiscard]] std::vector<base::Problem> unused_tensors(Registry registry) const;
  /// Name in the files of a parameter's values: its own, or the embedding's for the head of a tied
  /// model whose tie was ended by a saved copy of one of the two.
  [[nodiscard]] std::string source_name(Registry registry, const config::ParamSpec& spec) const;

  std::filesystem::path folder_;
  base::SafetensorsReader reader_;
};

/// New adapters: A uniform in ±1/√K (Kaiming with a = √5) drawn by (seed, module, element), B zero.
void init_lora(std::uint64_t seed, Parameters& parameters);

/// Reads adapter_model.safetensors in PEFT's layout. UserError when tensors are missing, unknown or
/// mis-shaped (an adapter of another model), or not finite.
void load_adapter(const std::filesystem::path& adapter_folder, Parameters& parameters);

/// PEFT's name in adapter_model.safetensors of a parameter saved with the adapter.
std::string adapter_tensor_name(const config::ParamSpec& spec);

}  // namespace longhaul::model
