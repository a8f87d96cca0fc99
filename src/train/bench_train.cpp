#include "train/bench_train.h"

#include <ATen/Context.h>
#include <ATen/Generator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "config/validate.h"
#include "metrics/rates.h"
#include "ops/backend.h"
#include "ops/scalar_type.h"
#include "plan/memory_model.h"
#include "plan/run_plan.h"
#include "train/bench_rows.h"
#include "train/out_of_memory.h"
#include "train/rank_setup.h"
#include "train/run_setup.h"

namespace longhaul::train {
namespace {

constexpr std::uint64_t kWeightSeed = 42;
constexpr double kLearningRate = 1e-4;
// A step of a longer row takes minutes, most of them in attention, which warms up on a part of its rows.
constexpr std::int64_t kLongestWarmUp = 131072;
constexpr std::int64_t kWarmUpRehearsal = 16;
// Shorter rows have one more step for the anatomy, so that its events do not slow a measured one.
constexpr std::int64_t kLongestExtraStep = 65536;

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
                  slab_scale(tuning_, dtype_, device), weight_share(config, *group.world)),
      exchange_(*group.sp, config::split_heads(model.num_heads, model.num_kv_heads, config.mesh.sp),
                model.head_dim),
      attention_(model, exchange_),
      store_(make_weight_store(config, model, parameters_,
                               tuning_.lora ? tuning_.lora->scale() : 1.0, *group.world)) {
  exchange_.use_peer_memory(!device.is_cpu());
}

double TrainBench::lora_dropout() const { return tuning_.lora ? tuning_.lora->dropout : 0.0; }

/// Norms 1, everything else small noise, equal on every rank.
void TrainBench::reset_weights() {
  at::Generator generator = at::globalContext().defaultGenerator(device_).clone();
  generator.set_current_seed(kWeightSeed);
  for (std::size_t i = 0; i < parameters_.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters_.registry()[i];
    if (spec.tied_to) {
      continue;
    }
    // Whole on every rank, also where it then keeps its rows only: the same model in any layout.
    const at::Tensor values = at::empty(
        spec.shape,
        at::TensorOptions(device_).dtype(spec.trainable ? at::kFloat : parameters_.compute_type()));
    if (spec.kind == config::ParamKind::kNorm) {
      values.fill_(1);
    } else {
      values.normal_(0, 0.02, generator);
    }
    parameters_.assign(static_cast<std::int64_t>(i), values);
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

std::int64_t elementwise_bytes(const config::ModelConfig& model, std::int64_t element_bytes) {
  const std::int64_t rotated = (model.num_heads + model.num_kv_heads) * model.head_dim;
  return (16 * model.hidden_size + 9 * model.intermediate_size + 4 * rotated) * element_bytes;
}

/// The best of a few large copies.
double TrainBench::copy_rate() const {
  const std::int64_t bytes = std::int64_t{device_.is_cpu() ? 32 : 256} << 20;
  constexpr int kCopies = 5;
  const at::Tensor from = at::zeros({bytes}, at::TensorOptions(device_).dtype(at::kByte));
  const at::Tensor to = at::empty_like(from);
  double best = 0;
  for (int i = 0; i <= kCopies; ++i) {
    to.narrow(0, 0, 1).cpu();
    const Clock::time_point begin = Clock::now();
    to.copy_(from);
    to.narrow(0, 0, 1).cpu();
    best = i == 0 ? 0 : std::max(best, 2 * static_cast<double>(bytes) / seconds_since(begin));
  }
  return best;
}

StepOutcome TrainBench::dissect(const StepParts& parts, const dist::LocalBatch& shard,
                                StepAnatomy& anatomy) {
  if (copy_bytes_per_s_ == 0) {
    copy_bytes_per_s_ = copy_rate();
  }
  ops::StepClock clock(device_);
  const Clock::time_point begin = Clock::now();
  const StepOutcome outcome = step(parts, shard);
  anatomy.step_s = seconds_since(begin);
  anatomy.seconds = clock.take();
  anatomy.idle_s = anatomy.step_s - anatomy.seconds.host;
  for (const double seconds : anatomy.seconds.of) {
    anatomy.idle_s -= seconds;
  }
  const auto kind = [&](ops::OpKind one) {
    return anatomy.seconds.of[static_cast<std::size_t>(one)];
  };
  const auto element = static_cast<std::int64_t>(base::dtype_bytes(dtype_));
  const auto bytes = static_cast<double>(elementwise_bytes(model_, element) * model_.num_layers *
                                         shard.my_tokens.size());
  anatomy.kernels_s =
      kind(ops::OpKind::kProducts) + kind(ops::OpKind::kAttention) + bytes / copy_bytes_per_s_;
  return outcome;
}

void TrainBench::measure_steps(const StepParts& parts, const dist::LocalBatch& shard,
                               std::int64_t steps, TrainMeasurement& result) {
  const auto count = static_cast<double>(steps);
  for (std::int64_t i = 0; i < steps; ++i) {
    const Clock::time_point begin = Clock::now();
    const bool is_dissected = i == steps - 1 && shard.row_tokens() > kLongestExtraStep;
    const StepOutcome outcome =
        is_dissected ? dissect(parts, shard, result.anatomy) : step(parts, shard);
    result.step_s.push_back(seconds_since(begin));
    result.exchange_s += outcome.comm_busy_s / count;
    result.exchange_bytes += outcome.comm_bytes / count;
    result.loss = outcome.loss;
  }
  group_.world->all_reduce_max("step times", std::span(result.step_s));
}

std::vector<LadderRung> ladder_rungs(std::int64_t tokens, bool on_gpu) {
  const std::int64_t mlp_rows = plan::mlp_tile_rows(on_gpu).front();
  std::vector<LadderRung> rungs = {
      {"checkpoints", {tokens, "D", plan::LayerForm{.logits_tile_rows = tokens}}},
      {"loss in tiles", {tokens, "D", plan::LayerForm{}}},
      {"MLP in tiles", {tokens, "D", plan::LayerForm{.mlp_tile_rows = mlp_rows}}},
      {"attention kept", {tokens, "C", plan::LayerForm{.mlp_tile_rows = mlp_rows}}}};
  if (on_gpu) {
    rungs.push_back({"offload", {tokens, "C+offload", plan::LayerForm{.mlp_tile_rows = mlp_rows}}});
  }
  rungs.push_back({"auto", {tokens, "auto"}});
  return rungs;
}

plan::MemoryPlan TrainBench::plan_for(const TrainPoint& point, double attended_length) const {
  return plan_rank({.config = &config_,
                    .model = &model_,
                    .registry = parameters_.registry(),
                    .dtype = dtype_,
                    .device = device_,
                    .activation_policy = point.policy,
                    .row_tokens = point.tokens,
                    .attended_length = attended_length,
                    .form = point.form,
                    .lora_dropout = lora_dropout()},
                   *group_.world);
}

void TrainBench::take_steps(const std::vector<std::int64_t>& documents, const MeasuringHook& hook,
                            TrainMeasurement& result) {
  const std::int64_t tokens = result.tokens;
  attention_.set_head_groups(result.plan.form.attention_groups);
  attention_.set_kernels(attention_kernels(config_));
  const std::int64_t rehearsal = config_.bench.attention_rehearsal;
  const auto rehearse = [&](std::int64_t one_in) {
    attention_.set_rehearsal(
        {.one_in = one_in, .kernel_bytes_per_row = result.plan.attention_kernel_bytes / tokens});
  };
  model::DecoderModel decoder(model_, *store_, attention_, result.plan.policies,
                              memory_settings(result.plan, tokens));
  const StepParts parts{.config = &config_,
                        .world = group_.world.get(),
                        .sp = group_.sp.get(),
                        .model = &decoder,
                        .parameters = &parameters_,
                        .optimizer = &*optimizer_,
                        .lora_dropout = lora_dropout()};
  const dist::LocalBatch shard = shard_of(documents);
  const config::BenchSteps steps = config::bench_steps(config_.bench, tokens);
  rehearse(tokens > kLongestWarmUp ? std::max(rehearsal, kWarmUpRehearsal) : rehearsal);
  for (std::int64_t i = 0; i < steps.warm_up; ++i) {
    step(parts, shard);
  }
  rehearse(rehearsal);
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
  const std::int64_t peers = device_.is_cpu() ? 0 : exchange_.peer_bytes();
  std::array<double, 3> most = {static_cast<double>(memory.peak_bytes + peers),
                                static_cast<double>(memory.peak_reserved_bytes + peers),
                                static_cast<double>(decoder.host_bytes())};
  group_.world->all_reduce_max("memory peaks", std::span<double>(most));
  result.memory.peak_bytes = static_cast<std::int64_t>(most[0]);
  result.memory.peak_reserved_bytes = static_cast<std::int64_t>(most[1]);
  result.host_bytes = static_cast<std::int64_t>(most[2]);
  if (tokens <= kLongestExtraStep) {
    dissect(parts, shard, result.anatomy);
  }
}

TrainMeasurement TrainBench::measure(const TrainPoint& point, const MeasuringHook& hook) {
  const std::int64_t tokens = point.tokens;
  const std::vector<std::int64_t> documents = bench_documents(tokens, config_.bench.packing_mean);
  TrainMeasurement result{.tokens = tokens,
                          .documents = static_cast<std::int64_t>(documents.size()),
                          .attended_length = metrics::attended_length(documents)};
  result.flops_per_token =
      metrics::flops_per_token(plan::model_sizes(model_),
                               plan::training_kind(parameters_.registry()), result.attended_length);
  exchange_.release_staging();  // of a longer row
  reset_weights();
  result.plan = plan_for(point, result.attended_length);
  if (point.form && !result.plan.fits) {
    return result;
  }
  explain_out_of_memory(fmt::format("{} tokens", tokens), result.plan, device_,
                        [&] { take_steps(documents, hook, result); });
  return result;
}

}  // namespace longhaul::train
