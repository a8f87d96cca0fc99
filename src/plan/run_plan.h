// The whole plan of a run as numbers and as lines: what `longhaul plan` prints.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/model_config.h"
#include "metrics/rates.h"
#include "plan/device.h"
#include "plan/layer_time.h"
#include "plan/memory_plan.h"

namespace longhaul::plan {

/// What is known of the data: from `--dataset`, or one full row.
struct DataFacts {
  bool is_real = false;
  std::int64_t num_sequences = 1;  // of one epoch
  std::int64_t steps_per_epoch = 1;
  std::int64_t total_steps = 0;  // 0: unknown without data
  std::int64_t largest_row = 0;  // tokens of the largest micro-batch
  std::int64_t step_tokens = 0;  // mean tokens of one step
  double attended_length = 0;    // Σ len² / Σ len of the documents
  double target_share = 1;       // target tokens / tokens
};

/// How fast the steps of the run are expected to be.
struct Pace {
  double step_seconds = 0;       // of a step of mean size
  double tokens_per_second = 0;  // all devices
  StepSeconds parts{};           // of the step; zeros for the CPU, whose rate is one rough figure
};

/// What another value of --activation_policy would give.
struct PolicyOutcome {
  std::string policy;
  MemoryPlan memory;
  Pace pace;
};

struct RunPlan {
  MemoryPlan memory;
  Pace pace;
  std::int64_t total_steps = 0;          // 0: unknown
  std::int64_t longest_row = 0;          // longest row that fits at the same degree; 0: none
  std::vector<PolicyOutcome> choices{};  // the presets, each for all layers
};

/// NCCL communicators that a GPU rank of these ranks holds.
std::int64_t communicators(const config::Config& config);

struct RunPlanRequest {
  const config::Config* config = nullptr;
  const config::ModelConfig* model = nullptr;
  std::span<const config::ParamSpec> registry;
  base::Dtype dtype = base::Dtype::kFloat32;
  DataFacts data;
  DeviceFacts device;
  /// Host memory of one rank for offloaded activations; absent: unknown.
  std::optional<std::int64_t> host_limit_bytes{};
  double lora_dropout = 0;
};

/// Bytes, policy, time, the longest row and the table of choices.
RunPlan make_run_plan(const RunPlanRequest& request);

/// The sizes that FLOPs are counted from.
metrics::ModelSizes model_sizes(const config::ModelConfig& model);
/// What of these parameters is trained; the LM head works on every row.
metrics::TrainingKind training_kind(std::span<const config::ParamSpec> registry);
/// "1.37 GB" (1e9 bytes).
std::string gigabytes(std::int64_t bytes);
/// Bytes of the optimizer's moments, and their type when it is not the usual one: "1.37 GB (bfloat16
/// moments)".
std::string optimizer_text(const config::Config& config, const RankBytes& bytes);
/// What is sharded over how many ranks, one line; of a config with sharded weights.
std::string sharding_text(const config::Config& config);
/// How many layers offload and the host memory that takes, one line.
std::string offload_text(const MemoryPlan& memory);
/// Query and KV heads of every sp rank: " 5/2 4/2" (KV copies counted where they are held).
std::string rank_heads_text(const config::ModelConfig& model, std::int64_t sp);

/// The plan for people, one line each.
std::vector<std::string> plan_lines(const RunPlanRequest& request, const RunPlan& plan);

}  // namespace longhaul::plan
