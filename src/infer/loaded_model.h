// A model ready to compute: configuration, weights and, unmerged, an adapter on top of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/dtype.h"
#include "config/model_config.h"
#include "config/shapes.h"
#include "model/parameters.h"
#include "model/weight_store.h"

namespace longhaul::infer {

/// An adapter on disk and what its own description says, targets resolved to modules of the model.
struct AdapterSource {
  std::filesystem::path folder;
  config::LoraSpec lora;
};

/// Nothing in it is trained, so no master copies and no gradients exist.
class LoadedModel {
 public:
  /// Reads the weights of `model_folder` and, if there is one, of the adapter. UserError as
  /// model/loader.h says.
  LoadedModel(const std::filesystem::path& model_folder, const config::ModelConfig& config,
              const std::optional<AdapterSource>& adapter, base::Dtype compute,
              at::Device device = at::kCPU);

  [[nodiscard]] const config::ModelConfig& config() const { return *config_; }
  [[nodiscard]] model::WeightStore& store() { return *store_; }
  [[nodiscard]] const model::Parameters& parameters() const { return *parameters_; }

 private:
  // On the heap, so that addresses survive a move.
  std::unique_ptr<config::ModelConfig> config_;
  std::unique_ptr<model::Parameters> parameters_;
  std::unique_ptr<model::ResidentWeightStore> store_;
};

}  // namespace longhaul::infer
