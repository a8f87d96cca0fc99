// The oracle: the plain formula of the decoder in fp64 with libtorch's autograd, one document at a
// time, nothing fused, nothing exchanged, no code shared with the product but the registry of
// names.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "model/parameters.h"
#include "model/tiny_models.h"

namespace longhaul::testing {

struct ReferenceResult {
  double loss_sum = 0;
  std::int64_t targets = 0;
  std::int64_t correct = 0;
  std::map<std::string, at::Tensor> gradients;  // by parameter name, fp64, of loss_sum · scale
};

/// Loss and gradients of all trained parameters summed over `documents`, each token's loss times
/// `scale`.
ReferenceResult reference_step(const config::ModelConfig& model, const model::Parameters& weights,
                               double lora_scale, const std::vector<Document>& documents,
                               double scale);

}  // namespace longhaul::testing
