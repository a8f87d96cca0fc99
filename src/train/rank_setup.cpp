#include "train/rank_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "config/sharding.h"
#include "metrics/memory.h"
#include "model/sharded_weight_store.h"
#include "ops/backend.h"
#include "plan/run_plan.h"

namespace longhaul::train {
namespace {

/// Bytes of tensors that this rank may plan with.
std::int64_t limit_bytes(const config::Config& config, at::Device device) {
  if (device.is_cpu()) {
    return host_limit_bytes(config);
  }
  const std::int64_t usable = ops::backend_of(device).usable_bytes();
  return std::min(config.memory.gpu_memory_limit_bytes.value_or(plan::planned_share(usable)),
                  usable);
}

}  // namespace

std::int64_t host_limit_bytes(const config::Config& config) {
  const auto available = static_cast<std::int64_t>(metrics::host_memory().available_bytes);
  const std::int64_t host = config.memory.host_memory_limit_bytes.value_or(available * 9 / 10);
  return host / std::max<std::int64_t>(1, config.launch.local_ranks);
}

std::optional<double> slab_scale(const config::TuningSpec& tuning, base::Dtype dtype,
                                 at::Device device) {
  const bool pays = !device.is_cpu() && dtype != base::Dtype::kFloat32;
  return pays && tuning.lora ? std::optional(tuning.lora->scale()) : std::nullopt;
}

std::optional<model::RankShare> weight_share(const config::Config& config,
                                             const dist::Communicator& world) {
  return config::shards_weights(config)
             ? std::optional(model::RankShare{world.rank(), world.size()})
             : std::nullopt;
}

std::unique_ptr<model::WeightStore> make_weight_store(const config::Config& config,
                                                      const config::ModelConfig& model,
                                                      const model::Parameters& parameters,
                                                      double lora_scale,
                                                      dist::Communicator& world) {
  if (config::shards_weights(config)) {
    return std::make_unique<model::ShardedWeightStore>(model, parameters, lora_scale, world);
  }
  return std::make_unique<model::ResidentWeightStore>(model, parameters, lora_scale);
}

model::MemorySettings memory_settings(const plan::MemoryPlan& plan, std::int64_t largest_row) {
  return {.host = {.planned_bytes = plan.bytes.host, .largest_row = largest_row},
          .mlp_tile_rows = plan.form.mlp_tile_rows,
          .reruns_u = plan.form.reruns_u,
          .logits_tile_rows = plan.form.logits_tile_rows};
}

plan::MemoryPlan plan_rank(const RankPlanRequest& request, dist::Communicator& world) {
  std::array<double, 2> limits = {
      -static_cast<double>(limit_bytes(*request.config, request.device)),
      -static_cast<double>(host_limit_bytes(*request.config))};
  world.all_reduce_max("memory limits", std::span(limits));
  const auto host_limit = static_cast<std::int64_t>(-limits[1]);
  plan::MemoryPlan plan = plan::make_memory_plan(
      {.model = request.model,
       .registry = request.registry,
       .dtype = request.dtype,
       .optimizer_dtype = request.config->train.optimizer_state_dtype,
       .mesh = request.config->mesh,
       .shard_ranks = config::shards_weights(*request.config) ? request.config->mesh.ranks() : 1,
       .row_tokens = request.row_tokens,
       .row_targets = request.row_tokens,
       .activation_policy = request.activation_policy,
       .on_gpu = !request.device.is_cpu(),
       .attention = plan::attention_kind(*request.config),
       .form = request.form,
       .limit_bytes = static_cast<std::int64_t>(-limits[0]),
       .host_limit_bytes = host_limit,
       .attended_length = request.attended_length,
       .lora_dropout = request.lora_dropout});
  if (plan.bytes.host > host_limit && !request.form) {
    throw base::SystemError(
        {.where = "--activation_policy " + request.activation_policy,
         .what = fmt::format("offloaded activations need {} of host memory per rank",
                             plan::gigabytes(plan.bytes.host)),
         .got = plan::gigabytes(host_limit) + " that a rank may use",
         .hint = "Offload fewer layers, or use auto; --host_memory_limit sets what the ranks of "
                 "a host share"});
  }
  return plan;
}

}  // namespace longhaul::train
