#include "infer/loaded_model.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "model/loader.h"

namespace longhaul::infer {
namespace {

at::ScalarType compute_type(base::Dtype dtype) {
  LONGHAUL_ASSERT(dtype == base::Dtype::kFloat32 || dtype == base::Dtype::kBFloat16,
                  "CPU ranks compute in float32 or bfloat16");
  return dtype == base::Dtype::kFloat32 ? at::kFloat : at::kBFloat16;
}

}  // namespace

LoadedModel::LoadedModel(const std::filesystem::path& model_folder,
                         const config::ModelConfig& config,
                         const std::optional<AdapterSource>& adapter, base::Dtype compute)
    : config_(std::make_unique<config::ModelConfig>(config)) {
  config::TuningSpec tuning;
  if (adapter) {
    tuning.lora = adapter->lora;
  }
  std::vector<config::ParamSpec> registry = config::build_registry(*config_, tuning);
  for (config::ParamSpec& param : registry) {
    param.trainable = false;
  }
  parameters_ = std::make_unique<model::Parameters>(std::move(registry), compute_type(compute));
  model::BaseWeights(model_folder).load(*parameters_);
  if (adapter) {
    model::load_adapter(adapter->folder, *parameters_);
  }
  store_ = std::make_unique<model::ResidentWeightStore>(*config_, *parameters_,
                                                        adapter ? adapter->lora.scale() : 1);
}

}  // namespace longhaul::infer
