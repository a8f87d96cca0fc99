// Training steps of a model with random weights, measured: the step, plan and parts of a run, without
// data, files or a run folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
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
#include "ops/step_clock.h"
#include "plan/memory_plan.h"
#include "train/optimizer.h"
#include "train/train_step.h"

namespace longhaul::train {

/// What is measured.
struct TrainPoint {
  std::int64_t tokens = 0;  // of the row
  std::string policy;
  std::optional<plan::LayerForm> form{};  // absent: the first that fits
};

/// One of the steps from a plain implementation to what the program does, each on top of the one
/// before.
struct LadderRung {
  std::string name;
  TrainPoint point;
};
/// checkpoints only, with the logits of a whole row; logits in tiles; the MLP in tiles; attention's
/// output kept; what is kept offloaded (GPU only); what `auto` chooses.
std::vector<LadderRung> ladder_rungs(std::int64_t tokens, bool on_gpu);

/// Where one step's time went on this rank, and what its kernels alone would take.
struct StepAnatomy {
  double step_s = 0;
  ops::OpSeconds seconds{};  // as ops::StepClock counts
  double idle_s = 0;         // the rest: gaps between operations, and the few that are of no kind
  /// Matrix products and attention as they ran, and every tensor of the element-wise operations
  /// read or written once at the rate of a copy.
  double kernels_s = 0;
};

/// Bytes that the element-wise operations of one layer's step move per token when every tensor is
/// read or written once and all slots but the element-wise ones are kept: norms 16 h, SwiGLU 9 f,
/// RoPE 4 times q and k.
std::int64_t elementwise_bytes(const config::ModelConfig& model, std::int64_t element_bytes);

/// Steps of one row length under one policy, equal on all ranks.
struct TrainMeasurement {
  std::int64_t tokens = 0;  // of the row
  std::int64_t documents = 1;
  double attended_length = 0;
  double flops_per_token = 0;  // metrics/rates.h
  plan::MemoryPlan plan{};
  std::vector<double> step_s{};  // of the slowest rank; empty: the given form does not fit
  ops::MemoryCounters memory{};  // peaks of the measured steps, of the rank that holds most
  std::int64_t host_bytes = 0;   // offloaded activations, of the rank that holds most
  double exchange_s = 0;         // mean of the steps and ranks
  double exchange_bytes = 0;     // sent by one rank in a step, mean over ranks
  double loss = 0;               // of the last step
  StepAnatomy anatomy{};         // of rank 0
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
  TrainMeasurement measure(const TrainPoint& point, const MeasuringHook& hook = {});

 private:
  [[nodiscard]] double lora_dropout() const;
  void reset_weights();
  [[nodiscard]] plan::MemoryPlan plan_for(const TrainPoint& point, double attended_length) const;
  StepOutcome step(const StepParts& parts, const dist::LocalBatch& shard);
  [[nodiscard]] dist::LocalBatch shard_of(const std::vector<std::int64_t>& documents) const;
  [[nodiscard]] double copy_rate() const;
  /// A step whose operations are timed.
  StepOutcome dissect(const StepParts& parts, const dist::LocalBatch& shard, StepAnatomy& anatomy);
  /// Fills all but what the plan says.
  void take_steps(const std::vector<std::int64_t>& documents, const MeasuringHook& hook,
                  TrainMeasurement& result);
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
  std::unique_ptr<model::WeightStore> store_;
  std::optional<AdamW> optimizer_;
  double copy_bytes_per_s_ = 0;  // of this device, read and written; 0: not measured yet
};

}  // namespace longhaul::train
