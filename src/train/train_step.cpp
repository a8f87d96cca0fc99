#include "train/train_step.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "data/batch_builder.h"
#include "metrics/rates.h"
#include "ops/backend.h"

namespace longhaul::train {
namespace {

/// This rank's shard of the group's samples.
dist::LocalBatch local_batch(const StepParts& parts, const data::TokenStore& store,
                             const data::SampleList& samples) {
  return dist::shard_row(data::build_batch(store, samples), parts.sp->size(), parts.sp->rank());
}

/// Indices of the values that are summed over all ranks after a step.
enum StepSum : std::size_t { kLoss, kCorrect, kWait, kBytes, kBusy, kNumSums };

model::RandomAddress random_address(const StepParts& parts, std::int64_t epoch) {
  const config::TrainOptions& options = parts.config->train;
  return {.seed = static_cast<std::uint64_t>(options.seed),
          .epoch = epoch,
          .lora_dropout = parts.lora_dropout,
          .neftune_alpha = options.neftune_noise_alpha.value_or(0.0)};
}

double loss_scale(std::int64_t targets) {
  return targets > 0 ? 1.0 / static_cast<double>(targets) : 0.0;
}

model::LossSum run_micro_batches(const StepParts& parts, const data::TokenStore& store,
                                 const data::StepPlan& plan, std::int64_t targets) {
  const config::Config& config = *parts.config;
  const model::RandomAddress random = random_address(parts, plan.cursor.epoch);
  const double scale = loss_scale(targets);
  const auto group = static_cast<std::size_t>(config.mesh.dp_rank(parts.world->rank()));
  model::FlatGradSink sink(*parts.parameters);
  model::LossSum sum;
  for (const auto& micro : plan.micros) {
    const data::SampleList& samples = micro[group];
    if (samples.empty()) {
      // All ranks of the group skip it together, as its exchanges are theirs alone; weights are
      // gathered by all.
      parts.model->sit_out_forward_backward();
      continue;
    }
    const model::LossSum part =
        parts.model->forward_backward(local_batch(parts, store, samples), scale, random, sink);
    sum.sum += part.sum;
    sum.correct += part.correct;
  }
  return sum;
}

void check_finite(double loss, double norm, std::int64_t step) {
  if (!std::isfinite(norm) || !std::isfinite(loss)) {
    throw base::UserError(base::Problem{
        .where = fmt::format("step {}", step),
        .what = "loss or gradient norm is not finite; nothing was updated",
        .got = fmt::format("loss {}, gradient norm {}", loss, norm),
        .hint =
            "Lower --learning_rate or raise --warmup_steps, and resume from the last checkpoint"});
  }
}

void begin_step(const StepParts& parts) {
  parts.world->reset_counters();
  parts.sp->reset_counters();
  parts.parameters->flat_gradients().zero_();
}

/// What is common to all steps once the micro-batches of this rank are through: sums over all ranks,
/// norm, clip, update.
void end_step(const StepParts& parts, const model::LossSum& local, std::int64_t stop_signal,
              double learning_rate, std::int64_t step, StepOutcome& outcome) {
  dist::Communicator& world = *parts.world;
  const at::Tensor& gradients = parts.parameters->flat_gradients();
  std::array<double, kNumSums> sums{};
  sums[kLoss] = local.sum;
  sums[kCorrect] = static_cast<double>(local.correct);
  const double exchange_wait = parts.sp->counters().wait_s;
  sums[kWait] = exchange_wait;
  sums[kBytes] = static_cast<double>(parts.sp->counters().exchange_bytes);
  sums[kBusy] = parts.sp->counters().exchange_s;
  world.all_reduce_sum("loss sums", std::span<double>(sums));
  std::array<double, 1> stop = {static_cast<double>(stop_signal)};
  world.all_reduce_max("stop request", stop);
  world.all_reduce_sum("gradients", std::span(gradients.data_ptr<float>(),
                                              static_cast<std::size_t>(gradients.numel())));
  const auto ranks = static_cast<double>(world.size());
  // A world that is the sequence-parallel group as well has waited for the exchanges, too.
  const double reduce_wait =
      world.counters().wait_s - (parts.sp == parts.world ? exchange_wait : 0);

  outcome.loss =
      outcome.target_tokens > 0 ? sums[kLoss] / static_cast<double>(outcome.target_tokens) : 0.0;
  outcome.correct_tokens = static_cast<std::int64_t>(sums[kCorrect]);
  outcome.comm_wait_s = sums[kWait] / ranks + reduce_wait;
  outcome.comm_bytes = sums[kBytes] / ranks;
  outcome.comm_busy_s = sums[kBusy] / ranks;
  outcome.stop_signal = static_cast<std::int64_t>(stop[0]);
  const ops::Backend& device = ops::backend_of(gradients);
  outcome.grad_norm = std::sqrt(device.kernels->sum_of_squares(gradients.data_ptr<float>(),
                                                               gradients.numel(), device.stream()));
  check_finite(outcome.loss, outcome.grad_norm, step);
  parts.optimizer->step(learning_rate,
                        clip_factor(outcome.grad_norm, parts.config->train.max_grad_norm));
}

}  // namespace

StepOutcome run_step(const StepParts& parts, const data::TokenStore& store,
                     const data::StepPlan& plan, double learning_rate,
                     const std::function<std::int64_t()>& stop_signal) {
  StepOutcome outcome;
  outcome.tokens = data::count_tokens(store, plan);
  outcome.target_tokens = data::count_targets(store, plan);
  outcome.attended_length = metrics::attended_length(data::document_lengths(store, plan));
  begin_step(parts);
  const model::LossSum local = run_micro_batches(parts, store, plan, outcome.target_tokens);
  end_step(parts, local, stop_signal(), learning_rate, plan.global_step + 1, outcome);
  return outcome;
}

StepOutcome run_row_step(const StepParts& parts, const dist::LocalBatch& shard,
                         std::int64_t targets, double learning_rate) {
  StepOutcome outcome;
  outcome.tokens = shard.row_tokens();
  outcome.target_tokens = targets;
  begin_step(parts);
  model::FlatGradSink sink(*parts.parameters);
  const model::LossSum local = parts.model->forward_backward(
      shard, loss_scale(targets), random_address(parts, /*epoch=*/0), sink);
  end_step(parts, local, /*stop_signal=*/0, learning_rate, parts.optimizer->steps_done() + 1,
           outcome);
  return outcome;
}

EvalOutcome run_evaluation(const StepParts& parts, const data::TokenStore& store) {
  const data::EvalSchedule schedule(store, *parts.config);
  const auto group = static_cast<std::size_t>(parts.config->mesh.dp_rank(parts.world->rank()));
  std::array<double, 3> sums{};
  for (std::int64_t round = 0; round < schedule.num_rounds(); ++round) {
    const data::SampleList samples = schedule.round(round)[group];
    if (samples.empty()) {
      parts.model->sit_out_evaluate();
      continue;
    }
    const model::LossSum part = parts.model->evaluate(local_batch(parts, store, samples));
    sums[0] += part.sum;
    sums[1] += static_cast<double>(part.correct);
    sums[2] += static_cast<double>(part.target_tokens);
  }
  parts.world->all_reduce_sum("evaluation sums", std::span<double>(sums));
  EvalOutcome outcome;
  outcome.target_tokens = static_cast<std::int64_t>(sums[2]);
  if (outcome.target_tokens > 0) {
    outcome.loss = sums[0] / sums[2];
    outcome.token_acc = sums[1] / sums[2];
  }
  return outcome;
}

}  // namespace longhaul::train
