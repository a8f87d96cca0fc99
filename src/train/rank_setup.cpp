#include "train/rank_setup.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "config/sharding.h"
#include "metrics/memory.h"
#include "ops/backend.h"
#include "ops/cuda_library.h"
#include "plan/run_plan.h"

namespace longhaul::train {
namespace {

/// Bytes of tensors that this rank may plan with.
std::int64_t limit_bytes(const config::Config& config, at::Device device) {
  if (device.is_cpu()) {
    return host_limit_bytes(config);
  }
  // A twentieth is left for what libraries take unasked; plans have been right within a hundredth.
  const std::int64_t usable = ops::backend_of(device).usable_bytes();
  return std::min(config.memory.gpu_memory_limit_bytes.value_or(usable * 19 / 20), usable);
}

}  // namespace

std::int64_t host_limit_bytes(const config::Config& config) {
  const auto available = static_cast<std::int64_t>(metrics::host_memory().available_bytes);
  const std::int64_t host = config.memory.host_memory_limit_bytes.value_or(available * 9 / 10);
  return host / std::max<std::int64_t>(1, config.launch.local_ranks);
}

at::Device open_device(const config::Config& config) {
  if (config.on_cpu()) {
    return at::kCPU;
  }
  const auto gpu = static_cast<c10::DeviceIndex>(config.launch.local_rank);
  ops::load_cuda_backend(gpu);
  at::Context& libtorch = at::globalContext();
  libtorch.setDeterministicAlgorithms(config.output.deterministic, /*warn_only=*/false);
  libtorch.setDeterministicFillUninitializedMemory(false);  // we never read such memory
  return {at::kCUDA, gpu};
}

std::optional<double> slab_scale(const config::TuningSpec& tuning, base::Dtype dtype,
                                 at::Device device) {
  const bool pays = !device.is_cpu() && dtype != base::Dtype::kFloat32;
  return pays && tuning.lora && tuning.lora->dropout == 0 ? std::optional(tuning.lora->scale())
                                                          : std::nullopt;
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
       .limit_bytes = static_cast<std::int64_t>(-limits[0]),
       .host_limit_bytes = host_limit,
       .attended_length = request.attended_length});
  if (plan.bytes.host > host_limit) {
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
