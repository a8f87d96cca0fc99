// What a rank that trains sets up before its first step, the same for runs and for measurements:
// its device, the shape of its weights, and the plan of its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "config/config.h"
#include "config/model_config.h"
#include "dist/communicator.h"
#include "plan/memory_plan.h"

namespace longhaul::train {

/// The device that this rank computes on. On a GPU its part of the program is loaded first;
/// SystemError when that cannot be.
at::Device open_device(const config::Config& config);

/// The scale for model::Parameters' slabs, which pay on a GPU in 16 bits; nothing where adapters
/// stay apart from their bases (dropout needs their input).
std::optional<double> slab_scale(const config::TuningSpec& tuning, base::Dtype dtype,
                                 at::Device device);

/// This rank's share of the host's memory: --host_memory_limit, else 90 % of what is free, over the
/// ranks of the host.
std::int64_t host_limit_bytes(const config::Config& config);

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
};

/// The same plan on every rank: all go by the one that has least memory.
///
/// Order   collective over `world`
/// Errors  SystemError when offloaded activations need more host memory than there is
plan::MemoryPlan plan_rank(const RankPlanRequest& request, dist::Communicator& world);

}  // namespace longhaul::train
