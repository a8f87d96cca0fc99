#include "train/bench_train.h"

#include <ATen/Context.h>
#include <ATen/Generator.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "config/validate.h"
#include "metrics/rates.h"
#include "ops/backend.h"
#include "ops/scalar_type.h"
#include "plan/run_plan.h"
#include "train/bench_rows.h"
#include "train/rank_setup.h"
#include "train/run_setup.h"

namespace longhaul::train {
namespace {

constexpr std::uint64_t kWeightSeed = 42;
constexpr double kLearningRate = 1e-4;
// A step of a longer row takes minutes: such rows are warmed up by shorter ones.
constexpr std::int64_t kLongestWarmUp = 262144;
constexpr std::int64_t kShortRow = 65536;
constexpr double kWarmUpSeconds = 20;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

TrainBench::TrainBench(const config::Config& config, const config::ModelConfig& model,
                       const dist::ProcessGroup& group, at::Device device)
    : config_(config),
      model_(model),
      group_(group),
      device_(device),
      tuning_(config::tuning_spec(config, model)),
      dtype_(compute_dtype(config, model)),
      parameters_(config::build_registry(model, tuning_), ops::torch_type(dtype_), device,
                  slab_scale(tuning_, dtype_, device)),
      exchange_(*group.sp, config::split_heads(model.num_heads, model.num_kv_heads, config.mesh.sp),
                model.head_dim),
      attention_(model, exchange_),
      store_(model, parameters_, tuning_.lora ? tuning_.lora->scale() : 1.0) {}

/// Norms 1, everything else small noise, equal on every rank.
void TrainBench::reset_weights() {
  at::Generator generator = at::globalContext().defaultGenerator(device_).clone();
  generator.set_current_seed(kWeightSeed);
  for (std::size_t i = 0; i < parameters_.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters_.registry()[i];
    if (spec.tied_to) {
      continue;
    }
    const auto param = static_cast<std::int64_t>(i);
    at::Tensor values = spec.trainable ? parameters_.master(param) : parameters_.compute(param);
    if (spec.kind == config::ParamKind::kNorm) {
      values.fill_(1);
    } else {
      values.normal_(0, 0.02, generator);
    }
  }
  parameters_.refresh_compute();
  optimizer_.reset();  // its memory is free before the next one takes as much
  optimizer_.emplace(parameters_, AdamWOptions{.state_dtype = config_.train.optimizer_state_dtype,
                                               .seed = kWeightSeed});
}

dist::LocalBatch TrainBench::shard_of(const std::vector<std::int64_t>& documents) const {
  return dist::shard_row(bench_row(documents, model_.vocab_size), group_.mesh.sp,
                         group_.sp->rank());
}

/// Returns when the device has finished.
StepOutcome TrainBench::step(const StepParts& parts, const dist::LocalBatch& shard) {
  const StepOutcome outcome = run_row_step(parts, shard, shard.row_tokens(), kLearningRate);
  parameters_.flat_masters().narrow(0, 0, 1).cpu();
  return outcome;
}

void TrainBench::warm_up(const StepParts& parts, const dist::LocalBatch& shard,
                         const config::BenchSteps& steps) {
  if (shard.row_tokens() <= kLongestWarmUp) {
    for (std::int64_t i = 0; i < steps.warm_up; ++i) {
      step(parts, shard);
    }
    return;
  }
  const dist::LocalBatch shorter = shard_of(bench_documents(kShortRow, config_.bench.packing_mean));
  const Clock::time_point begin = Clock::now();
  std::array<double, 1> longest = {0};
  while (longest[0] < kWarmUpSeconds) {
    step(parts, shorter);
    longest[0] = seconds_since(begin);
    group_.world->all_reduce_max("warm-up time", std::span<double>(longest));
  }
}

void TrainBench::measure_steps(const StepParts& parts, const dist::LocalBatch& shard,
                               std::int64_t steps, TrainMeasurement& result) {
  const auto count = static_cast<double>(steps);
  for (std::int64_t i = 0; i < steps; ++i) {
    const Clock::time_point begin = Clock::now();
    const StepOutcome outcome = step(parts, shard);
    result.step_s.push_back(seconds_since(begin));
    result.exchange_s += outcome.comm_busy_s / count;
    result.exchange_bytes += outcome.comm_bytes / count;
    result.loss = outcome.loss;
  }
  group_.world->all_reduce_max("step times", std::span(result.step_s));
}

TrainMeasurement TrainBench::measure(std::int64_t tokens, const std::string& policy,
                                     const MeasuringHook& hook) {
  const std::vector<std::int64_t> documents = bench_documents(tokens, config_.bench.packing_mean);
  TrainMeasurement result{.tokens = tokens,
                          .documents = static_cast<std::int64_t>(documents.size()),
                          .attended_length = metrics::attended_length(documents)};
  result.flops_per_token =
      metrics::flops_per_token(plan::model_sizes(model_),
                               {.lora_weights = tuning_.full ? 0 : parameters_.trainable_elements(),
                                .base_is_trained = tuning_.full},
                               result.attended_length);
  exchange_.release_staging();  // of a longer row
  reset_weights();
  result.plan = plan_rank({.config = &config_,
                           .model = &model_,
                           .registry = parameters_.registry(),
                           .dtype = dtype_,
                           .device = device_,
                           .activation_policy = policy,
                           .row_tokens = tokens,
                           .attended_length = result.attended_length},
                          *group_.world);
  attention_.set_head_groups(result.plan.form.attention_groups);
  model::DecoderModel decoder(
      model_, store_, attention_, result.plan.policies,
      model::MemorySettings{
          .host = {.planned_bytes = result.plan.bytes.host, .largest_row = tokens},
          .mlp_tile_rows = result.plan.form.mlp_tile_rows});
  const StepParts parts{.config = &config_,
                        .world = group_.world.get(),
                        .sp = group_.sp.get(),
                        .model = &decoder,
                        .parameters = &parameters_,
                        .optimizer = &*optimizer_};
  const dist::LocalBatch shard = shard_of(documents);
  const config::BenchSteps steps = config::bench_steps(config_.bench, tokens);
  warm_up(parts, shard, steps);
  const ops::Backend& device = ops::backend_of(device_);
  device.reset_memory_peak();
  if (hook) {
    hook(true);
  }
  measure_steps(parts, shard, steps.measured, result);
  if (hook) {
    hook(false);
  }
  const ops::MemoryCounters memory = device.memory();
  std::array<double, 3> most = {static_cast<double>(memory.peak_bytes),
                                static_cast<double>(memory.peak_reserved_bytes),
                                static_cast<double>(decoder.host_bytes())};
  group_.world->all_reduce_max("memory peaks", std::span<double>(most));
  result.memory.peak_bytes = static_cast<std::int64_t>(most[0]);
  result.memory.peak_reserved_bytes = static_cast<std::int64_t>(most[1]);
  result.host_bytes = static_cast<std::int64_t>(most[2]);
  return result;
}

}  // namespace longhaul::train
