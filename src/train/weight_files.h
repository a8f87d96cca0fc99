// The tensor files of a checkpoint: adapter or full weights in the layouts that PEFT and
// transformers load, and the optimizer's state under parameter names, independent of the number of
// ranks.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/dtype.h"
#include "model/parameters.h"
#include "train/optimizer.h"

namespace longhaul::train {

/// adapter_model.safetensors: fp32 LoRA matrices and copies of saved modules, PEFT's names.
void write_adapter_weights(const std::filesystem::path& folder,
                           const model::Parameters& parameters);

/// model.safetensors (several with an index above `shard_bytes`) in `dtype`, Hugging Face's names,
/// tied tensors once.
void write_full_weights(const std::filesystem::path& folder, const model::Parameters& parameters,
                        base::Dtype dtype, std::int64_t shard_bytes = 5'000'000'000);

/// optimizer.safetensors: exp_avg/NAME and exp_avg_sq/NAME in the optimizer's state type, master/NAME
/// in fp32.
void write_optimizer(const std::filesystem::path& folder, const model::Parameters& parameters,
                     const AdamW& optimizer);

/// Puts masters and moments back; UserError naming what is missing or has another shape or type.
void read_optimizer(const std::filesystem::path& folder, model::Parameters& parameters,
                    AdamW& optimizer);

}  // namespace longhaul::train
