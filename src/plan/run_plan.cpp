#include "plan/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "config/sharding.h"
#include "metrics/duration.h"
#include "metrics/progress.h"
#include "metrics/rates.h"
#include "plan/policy_choice.h"
#include "plan/step_time.h"

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
          .attention = attention_kind(*request.config),
          .limit_bytes = request.device.memory_bytes,
          .host_limit_bytes = request.host_limit_bytes,
          .attended_length = request.data.attended_length * longer,
          .lora_dropout = request.lora_dropout};
}

/// The micro-batch of mean size, for times. Its targets are taken to lie evenly in the row.
MemoryRequest mean_row(const RunPlanRequest& request) {
  const std::int64_t rows = request.config->mesh.dp * request.config->accumulation;
  const std::int64_t tokens = std::max<std::int64_t>(1, request.data.step_tokens / rows);
  MemoryRequest row = memory_request(request, tokens);
  row.row_targets = std::llround(static_cast<double>(tokens) * request.data.target_share /
                                 static_cast<double>(row.mesh.sp));
  row.attended_length = request.data.attended_length;
  row.rates = request.device.rates;
  return row;
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

/// FLOPs that really run per useful FLOP, roughly.
double rerun_factor(const MemoryPlan& memory) {
  double total = 0;
  for (const config::LayerPolicy& policy : memory.policies) {
    total += 1.0 + rerun_share(policy.preset);
  }
  return total / static_cast<double>(memory.policies.size());
}

/// From the one rate that is assumed of a CPU's thread.
double cpu_step_seconds(const RunPlanRequest& request, const MemoryPlan& memory) {
  const double flops = metrics::flops_per_token(
      model_sizes(*request.model), training_kind(request.registry), request.data.attended_length);
  const double rate = request.device.flops_per_s *
                      static_cast<double>(request.config->mesh.ranks()) / rerun_factor(memory);
  return static_cast<double>(request.data.step_tokens) * flops / rate;
}

Pace pace_of(const RunPlanRequest& request, const MemoryPlan& memory) {
  Pace pace;
  if (request.device.is_cpu) {
    pace.step_seconds = cpu_step_seconds(request, memory);
  } else {
    pace.parts =
        step_seconds(mean_row(request), memory.policies, memory.form, request.config->accumulation);
    pace.step_seconds = pace.parts.total();
  }
  pace.tokens_per_second =
      metrics::per_second(static_cast<double>(request.data.step_tokens), pace.step_seconds);
  return pace;
}

std::vector<PolicyOutcome> outcomes(const RunPlanRequest& request) {
  std::vector<std::string> policies = {"A", "B", "C", "D", "D2"};
  if (!request.device.is_cpu) {
    policies.insert(policies.end(), {"B+offload", "D+offload"});
  }
  std::vector<PolicyOutcome> result;
  for (std::string& policy : policies) {
    MemoryRequest row = memory_request(request, request.data.largest_row);
    row.activation_policy = policy;
    MemoryPlan memory = make_memory_plan(row);
    const Pace pace = pace_of(request, memory);
    result.push_back({std::move(policy), std::move(memory), pace});
  }
  return result;
}

/// Three digits up to a minute: "0.243 s", "3.07 s"; then as durations are written everywhere.
std::string seconds_text(double seconds) {
  return seconds < 60 ? fmt::format("{:#.3g} s", seconds) : metrics::format_duration(seconds);
}

std::string rate_text(double per_second) {
  return per_second < 100 ? fmt::format("{:#.3g}", per_second)
                          : with_thousands(std::llround(per_second));
}

std::string pace_line(const RunPlanRequest& request, const RunPlan& plan) {
  std::string text =
      fmt::format("expected: {} tokens/s, {} per step", rate_text(plan.pace.tokens_per_second),
                  seconds_text(plan.pace.step_seconds));
  if (plan.total_steps > 0) {
    text += fmt::format(
        ", {} for {} steps",
        metrics::format_duration(static_cast<double>(plan.total_steps) * plan.pace.step_seconds),
        with_thousands(plan.total_steps));
  }
  const bool is_rough = !request.device.is_measured || request.dtype == base::Dtype::kFloat32;
  return text + (is_rough ? " (rough)" : "");
}

/// What the step's time goes to; nothing for the CPU. Parts below half a percent are left out.
std::string parts_line(const Pace& pace) {
  const StepSeconds& parts = pace.parts;
  const double busy = parts.products + parts.attention + parts.traffic;
  const double waits = parts.exchanges + parts.copies + parts.gathers + parts.launches;
  const std::array named = {std::pair{"matrix products", parts.products},
                            std::pair{"attention", parts.attention},
                            std::pair{"memory traffic", parts.traffic},
                            std::pair{"exchanges", parts.exchanges},
                            std::pair{"copies to and from the host", parts.copies},
                            std::pair{"gathered weights", parts.gathers},
                            std::pair{"kernel launches", parts.launches},
                            std::pair{"gaps", pace.step_seconds - busy - waits}};
  std::string text;
  for (const auto& [name, seconds] : named) {
    const double percent = 100 * seconds / pace.step_seconds;
    if (busy > 0 && percent >= 0.5) {
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "a step's time: " : ", ", name, percent);
    }
  }
  return text;
}

std::vector<std::string> choice_lines(const RunPlan& plan) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{:<32}{:>15}{:>12}{:>12}{:>12}", "choices (--activation_policy):",
                              "GB per rank", "host GB", "tokens/s", "per step"));
  const auto gb = [](std::int64_t bytes) {
    return fmt::format("{:.2f}", static_cast<double>(bytes) / 1e9);
  };
  for (const PolicyOutcome& choice : plan.choices) {
    const RankBytes& bytes = choice.memory.bytes;
    const std::string form = form_text(choice.memory.form);
    lines.push_back(
        fmt::format("  {:<30}{:>15}{:>12}{:>12}{:>12}{}{}", choice.policy, gb(bytes.total()),
                    bytes.host > 0 ? gb(bytes.host) : "", rate_text(choice.pace.tokens_per_second),
                    seconds_text(choice.pace.step_seconds),
                    choice.memory.fits ? "" : "  does not fit", form.empty() ? "" : "  " + form));
  }
  return lines;
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

std::string beside_text(const config::Config& config) {
  const std::int64_t count = communicators(config);
  std::string text =
      fmt::format("beside it: about {} of CUDA's context and kernels", gigabytes(kContextBytes));
  if (count > 0) {
    text += fmt::format(", {} of NCCL", gigabytes(count * kCommunicatorBytes));
  }
  return text;
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

metrics::TrainingKind training_kind(std::span<const config::ParamSpec> registry) {
  metrics::TrainingKind kind;
  for (const config::ParamSpec& spec : registry) {
    const bool adapter =
        spec.kind == config::ParamKind::kLoraA || spec.kind == config::ParamKind::kLoraB;
    kind.lora_weights += adapter ? spec.num_elements() : 0;
    kind.base_is_trained = kind.base_is_trained || (spec.trainable && !spec.in_adapter);
  }
  return kind;
}

std::string rank_heads_text(const config::ModelConfig& model, std::int64_t sp) {
  std::string text;
  for (const config::RankHeads& heads :
       config::split_heads(model.num_heads, model.num_kv_heads, sp)) {
    text += fmt::format(" {}/{}", heads.num_query_heads(), heads.num_kv_heads());
  }
  return text;
}

std::int64_t communicators(const config::Config& config) {
  const config::Mesh& mesh = config.mesh;
  if (mesh.ranks() == 1) {
    return 0;
  }
  // Of all ranks, which is also a group's when there is one of it; sharded weights are gathered through their own.
  const bool has_groups = mesh.dp > 1 && mesh.sp > 1;
  return 1 + (has_groups ? 2 : 0) + (config::shards_weights(config) ? 1 : 0);
}

RunPlan make_run_plan(const RunPlanRequest& request) {
  RunPlan plan;
  plan.memory = make_memory_plan(memory_request(request, request.data.largest_row));
  plan.pace = pace_of(request, plan.memory);
  plan.total_steps = request.data.total_steps > 0
                         ? request.data.total_steps
                         : std::max<std::int64_t>(0, request.config->train.max_steps);
  plan.longest_row = longest_row(request);
  plan.choices = outcomes(request);
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
  if (!request.device.is_cpu) {
    lines.push_back(beside_text(config));
  }
  if (config::shards_weights(config)) {
    lines.push_back(sharding_text(config));
  }
  if (bytes.host > 0) {
    lines.push_back(offload_text(plan.memory));
  }
  lines.push_back(pace_line(request, plan));
  if (std::string parts = parts_line(plan.pace); !parts.empty()) {
    lines.push_back(std::move(parts));
  }
  lines.push_back(
      plan.longest_row > 0
          ? fmt::format("longest row that fits: {} tokens", with_thousands(plan.longest_row))
          : std::string("longest row that fits: none; the weights alone are too large"));
  for (std::string& line : choice_lines(plan)) {
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace longhaul::plan
