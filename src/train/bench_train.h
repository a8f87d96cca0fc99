// Training steps of a model with random weights, measured: the step, plan and parts of a run, without
// data, files or a run folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/bench_rules.h"
#include "config/config.h"
#include "config/model_config.h"
#include "dist/process_group.h"
#include "dist/ulysses.h"
#include "model/decoder_model.h"
#include "ops/memory.h"
#include "plan/memory_plan.h"
#include "train/optimizer.h"
#include "train/train_step.h"

namespace longhaul::train {

/// Steps of one row length under one policy, equal on all ranks.
struct TrainMeasurement {
  std::int64_t tokens = 0;  // of the row
  std::int64_t documents = 1;
  double attended_length = 0;
  double flops_per_token = 0;  // metrics/rates.h
  plan::MemoryPlan plan{};
  std::vector<double> step_s{};  // of the slowest rank
  ops::MemoryCounters memory{};  // peaks of the measured steps, of the rank that holds most
  std::int64_t host_bytes = 0;   // offloaded activations, of the rank that holds most
  double exchange_s = 0;         // mean of the steps and ranks
  double exchange_bytes = 0;     // sent by one rank in a step, mean over ranks
  double loss = 0;               // of the last step
};

/// Called with true before the measured steps and with false behind them.
using MeasuringHook = std::function<void(bool is_measuring)>;

class TrainBench {
 public:
  /// Fills the weights of `config`'s tuning with random values. All arguments outlive this object.
  /// Collective.
  TrainBench(const config::Config& config, const config::ModelConfig& model,
             const dist::ProcessGroup& group, at::Device device);

  /// Always starts from the same weights and optimizer state. Collective.
  TrainMeasurement measure(std::int64_t tokens, const std::string& policy,
                           const MeasuringHook& hook = {});

 private:
  void reset_weights();
  void warm_up(const StepParts& parts, const dist::LocalBatch& shard,
               const config::BenchSteps& steps);
  StepOutcome step(const StepParts& parts, const dist::LocalBatch& shard);
  [[nodiscard]] dist::LocalBatch shard_of(const std::vector<std::int64_t>& documents) const;
  void measure_steps(const StepParts& parts, const dist::LocalBatch& shard, std::int64_t steps,
                     TrainMeasurement& result);

  const config::Config& config_;
  const config::ModelConfig& model_;
  const dist::ProcessGroup& group_;
  at::Device device_;
  config::TuningSpec tuning_;
  base::Dtype dtype_;
  model::Parameters parameters_;
  dist::UlyssesExchange exchange_;
  model::UlyssesAttention attention_;
  model::ResidentWeightStore store_;
  std::optional<AdamW> optimizer_;
};

}  // namespace longhaul::train
