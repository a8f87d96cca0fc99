// What a rank that trains sets up before its first step, the same for runs and for measurements:
// its device, the shape of its weights, and the plan of its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "config/config.h"
#include "config/model_config.h"
#include "dist/communicator.h"
#include "model/decoder_model.h"
#include "model/parameters.h"
#include "model/weight_store.h"
#include "plan/memory_plan.h"

namespace longhaul::train {

/// The scale for model::Parameters' slabs, which pay on a GPU in 16 bits; nothing where adapters
/// stay apart from their bases.
std::optional<double> slab_scale(const config::TuningSpec& tuning, base::Dtype dtype,
                                 at::Device device);

/// This rank's share of the host's memory: --host_memory_limit, else 90 % of what is free, over the
/// ranks of the host.
std::int64_t host_limit_bytes(const config::Config& config);

/// The part of the weights that this rank holds when the run shards them; nothing when it does not.
std::optional<model::RankShare> weight_share(const config::Config& config,
                                             const dist::Communicator& world);

/// Where layers get their weights from: sharded over `world` or whole on every rank. The arguments
/// outlive the store. Collective when the run shards.
std::unique_ptr<model::WeightStore> make_weight_store(const config::Config& config,
                                                      const config::ModelConfig& model,
                                                      const model::Parameters& parameters,
                                                      double lora_scale, dist::Communicator& world);

/// What the decoder is told of a plan for rows of at most `largest_row` tokens.
model::MemorySettings memory_settings(const plan::MemoryPlan& plan, std::int64_t largest_row);

/// What a rank's plan depends on beside the memory that is there.
struct RankPlanRequest {
  const config::Config* config = nullptr;
  const config::ModelConfig* model = nullptr;
  std::span<const config::ParamSpec> registry;
  base::Dtype dtype = base::Dtype::kFloat32;
  at::Device device = at::kCPU;
  std::string activation_policy;
  std::int64_t row_tokens = 0;  // of the largest row
  double attended_length = 0;
  std::optional<plan::LayerForm> form{};  // absent: the first that fits
  double lora_dropout = 0;
};

/// The same plan on every rank: all go by the one that has least memory.
///
/// Order   collective over `world`
/// Errors  SystemError when offloaded activations need more host memory than there is (with a given
/// form the plan says that it does not fit)
plan::MemoryPlan plan_rank(const RankPlanRequest& request, dist::Communicator& world);

}  // namespace longhaul::train
