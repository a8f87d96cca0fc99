#include "infer/loaded_model.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "model/loader.h"
#include "ops/scalar_type.h"

namespace longhaul::infer {

LoadedModel::LoadedModel(const std::filesystem::path& model_folder,
                         const config::ModelConfig& config,
                         const std::optional<AdapterSource>& adapter, base::Dtype compute,
                         at::Device device)
    : config_(std::make_unique<config::ModelConfig>(config)) {
  LONGHAUL_ASSERT(!device.is_cpu() || compute != base::Dtype::kFloat16,
                  "the CPU computes in float32 or bfloat16");
  config::TuningSpec tuning;
  if (adapter) {
    tuning.lora = adapter->lora;
  }
  std::vector<config::ParamSpec> registry = config::build_registry(*config_, tuning);
  for (config::ParamSpec& param : registry) {
    param.trainable = false;
  }
  parameters_ =
      std::make_unique<model::Parameters>(std::move(registry), ops::torch_type(compute), device);
  model::BaseWeights(model_folder).load(*parameters_);
  if (adapter) {
    model::load_adapter(adapter->folder, *parameters_);
  }
  store_ = std::make_unique<model::ResidentWeightStore>(*config_, *parameters_,
                                                        adapter ? adapter->lora.scale() : 1);
}

}  // namespace longhaul::infer
