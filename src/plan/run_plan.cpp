#include "plan/run_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/sharding.h"
#include "metrics/duration.h"
#include "metrics/progress.h"
#include "metrics/rates.h"
#include "plan/policy_choice.h"

namespace longhaul::plan {
namespace {

using metrics::with_thousands;

constexpr std::int64_t kLongestRowTried = std::int64_t{1} << 26;

MemoryRequest memory_request(const RunPlanRequest& request, std::int64_t row_tokens) {
  // A longer row is taken to hold longer documents.
  const double longer = static_cast<double>(row_tokens) /
                        static_cast<double>(std::max<std::int64_t>(1, request.data.largest_row));
  return {.model = request.model,
          .registry = request.registry,
          .dtype = request.dtype,
          .optimizer_dtype = request.config->train.optimizer_state_dtype,
          .mesh = request.config->mesh,
          .shard_ranks = config::shards_weights(*request.config) ? request.config->mesh.ranks() : 1,
          .row_tokens = row_tokens,
          .row_targets = row_tokens,
          .activation_policy = request.config->memory.activation_policy,
          .on_gpu = !request.device.is_cpu,
          .limit_bytes = request.device.memory_bytes,
          .host_limit_bytes = request.host_limit_bytes,
          .attended_length = request.data.attended_length * longer};
}

/// Largest row (to 256 tokens) whose plan fits the device; 0 when none does.
std::int64_t longest_row(const RunPlanRequest& request) {
  constexpr std::int64_t kStep = 256;
  std::int64_t fits = 0;
  std::int64_t too_long = kLongestRowTried / kStep;
  while (too_long - fits > 1) {
    const std::int64_t middle = fits + (too_long - fits) / 2;
    (make_memory_plan(memory_request(request, middle * kStep)).fits ? fits : too_long) = middle;
  }
  return fits * kStep;
}

/// FLOPs that really run per useful FLOP.
double rerun_factor(const MemoryPlan& memory) {
  double total = 0;
  for (const config::LayerPolicy& policy : memory.policies) {
    total += 1.0 + rerun_share(policy.preset);
  }
  return total / static_cast<double>(memory.policies.size());
}

std::string heads_line(const RunPlanRequest& request) {
  const config::ModelConfig& model = *request.model;
  return fmt::format("heads (query/KV): {}/{}; per sp rank:{}", model.num_heads, model.num_kv_heads,
                     rank_heads_text(model, request.config->mesh.sp));
}

std::string steps_line(const RunPlanRequest& request) {
  const config::Config& config = *request.config;
  const std::string batch = fmt::format(
      "{} sequences per step (batch {} x accumulation {} x dp {})", config.global_batch(),
      config.train.per_device_train_batch_size, config.accumulation, config.mesh.dp);
  const DataFacts& data = request.data;
  if (!data.is_real) {
    return fmt::format("batch: {}; steps: unknown without --dataset, one full row is planned",
                       batch);
  }
  return fmt::format("batch: {}; steps: {} ({} per epoch, {} sequences per epoch)", batch,
                     with_thousands(data.total_steps), data.steps_per_epoch,
                     with_thousands(data.num_sequences));
}

}  // namespace

std::string gigabytes(std::int64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

std::string optimizer_text(const config::Config& config, const RankBytes& bytes) {
  const base::Dtype dtype = config.train.optimizer_state_dtype;
  const std::string type =
      dtype == base::Dtype::kFloat32 ? "" : fmt::format(" ({} moments)", base::dtype_name(dtype));
  return gigabytes(bytes.optimizer) + type;
}

std::string sharding_text(const config::Config& config) {
  return fmt::format(
      "sharding: frozen weights of the layers over {} ranks, gathered a layer ahead; embedding and "
      "LM head whole on every rank",
      config.mesh.ranks());
}

std::string offload_text(const MemoryPlan& memory) {
  const auto layers = std::count_if(memory.policies.begin(), memory.policies.end(),
                                    [](const auto& policy) { return policy.offload; });
  return fmt::format("offload: activations of {} of {} layers, {} of pinned host memory per rank",
                     layers, memory.policies.size(), gigabytes(memory.bytes.host));
}

metrics::ModelSizes model_sizes(const config::ModelConfig& model) {
  return {.num_layers = model.num_layers,
          .hidden = model.hidden_size,
          .num_query_heads = model.num_heads,
          .num_kv_heads = model.num_kv_heads,
          .head_dim = model.head_dim,
          .intermediate = model.intermediate_size,
          .vocabulary = model.vocab_size};
}

std::string rank_heads_text(const config::ModelConfig& model, std::int64_t sp) {
  std::string text;
  for (const config::RankHeads& heads :
       config::split_heads(model.num_heads, model.num_kv_heads, sp)) {
    text += fmt::format(" {}/{}", heads.num_query_heads(), heads.num_kv_heads());
  }
  return text;
}

RunPlan make_run_plan(const RunPlanRequest& request) {
  RunPlan plan;
  plan.memory = make_memory_plan(memory_request(request, request.data.largest_row));
  std::int64_t lora = 0;
  bool base_trained = false;
  for (const config::ParamSpec& spec : request.registry) {
    const bool adapter =
        spec.kind == config::ParamKind::kLoraA || spec.kind == config::ParamKind::kLoraB;
    lora += adapter ? spec.num_elements() : 0;
    base_trained = base_trained || (spec.trainable && !spec.in_adapter);
  }
  const double flops = metrics::flops_per_token(
      model_sizes(*request.model), {.lora_weights = lora, .base_is_trained = base_trained},
      request.data.attended_length);
  const double rate = request.device.flops_per_s *
                      static_cast<double>(request.config->mesh.ranks()) / rerun_factor(plan.memory);
  plan.tokens_per_second = rate / flops;
  plan.step_seconds = static_cast<double>(request.data.step_tokens) / plan.tokens_per_second;
  plan.longest_row = longest_row(request);
  return plan;
}

std::vector<std::string> plan_lines(const RunPlanRequest& request, const RunPlan& plan) {
  const config::Config& config = *request.config;
  const RankBytes& bytes = plan.memory.bytes;
  std::int64_t total = 0;
  std::int64_t trained = 0;
  for (const config::ParamSpec& spec : request.registry) {
    total += spec.tied_to ? 0 : spec.num_elements();
    trained += spec.trainable && !spec.tied_to ? spec.num_elements() : 0;
  }
  std::vector<std::string> lines;
  lines.push_back(fmt::format("model: {} ({}, {} layers, {}), {} parameters, {} trained",
                              config.model.model, request.model->model_type,
                              request.model->num_layers, base::dtype_name(request.dtype),
                              with_thousands(total), with_thousands(trained)));
  lines.push_back(fmt::format("device: {}, {} each", request.device.name,
                              gigabytes(request.device.memory_bytes)));
  lines.push_back(fmt::format("ranks: {}, mesh dp {} x sp {}{}", config.mesh.ranks(),
                              config.mesh.dp, config.mesh.sp,
                              config.mesh.sp > 1 ? " (Ulysses)" : ""));
  lines.push_back(heads_line(request));
  lines.push_back(
      fmt::format("rows of up to {} tokens, {} per device; {} tokens per step",
                  with_thousands(config.row_length),
                  with_thousands((request.data.largest_row + config.mesh.sp - 1) / config.mesh.sp),
                  with_thousands(request.data.step_tokens)));
  lines.push_back(steps_line(request));
  lines.push_back("activation policy: " + choice_text(plan.memory));
  lines.push_back(fmt::format(
      "memory per rank: {} = weights {} + masters {} + gradients {} + optimizer {} + activations "
      "{} "
      "+ working set {}{}",
      gigabytes(bytes.total()), gigabytes(bytes.weights), gigabytes(bytes.masters),
      gigabytes(bytes.gradients), optimizer_text(config, bytes), gigabytes(bytes.activations),
      gigabytes(bytes.working_set), plan.memory.fits ? "" : " — DOES NOT FIT"));
  if (config::shards_weights(config)) {
    lines.push_back(sharding_text(config));
  }
  if (bytes.host > 0) {
    lines.push_back(offload_text(plan.memory));
  }
  lines.push_back(fmt::format("expected: {:.0f} tokens/s, {} per step (rough)",
                              plan.tokens_per_second, metrics::format_duration(plan.step_seconds)));
  lines.push_back(
      plan.longest_row > 0
          ? fmt::format("longest row that fits: {} tokens", with_thousands(plan.longest_row))
          : std::string("longest row that fits: none; the weights alone are too large"));
  return lines;
}

}  // namespace longhaul::plan
