// What one logged step looked like: the line of logging.jsonl. Flat and versioned; numbers read
// back exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace longhaul::metrics {

/// Units in the names; `loss` in nats per target token; comm_share in 0…1.
struct StepRecord {
  double loss = 0;
  double grad_norm = 0;      // before clipping
  double learning_rate = 0;  // the rate used
  double token_acc = 0;
  double epoch = 0;
  std::int64_t global_step = 0;
  std::int64_t max_steps = 0;
  double elapsed_s = 0;
  double remaining_s = 0;
  double memory_gib = 0;  // peak device memory; on CPU peak resident
  double train_speed_s_per_it = 0;
  std::int64_t tokens = 0;  // of the step, padding not counted
  std::int64_t target_tokens = 0;
  double tokens_per_second = 0;
  double tokens_per_second_per_device = 0;
  std::optional<double> mfu{};  // absent on the CPU and on GPUs that are not known
  double host_memory_gib = 0;
  double comm_share = 0;
  double comm_gb_per_s = 0;
  std::int64_t sp = 1;
  std::int64_t dp = 1;
};

/// One evaluation.
struct EvalRecord {
  double eval_loss = 0;
  double eval_token_acc = 0;
  double eval_runtime_s = 0;
  double epoch = 0;
  std::int64_t global_step = 0;
  std::int64_t max_steps = 0;
};

/// Last line of logging.jsonl.
struct RunSummary {
  std::string last_model_checkpoint{};  // empty: none
  std::string best_model_checkpoint{};
  std::optional<double> best_metric{};
  std::int64_t global_step = 0;
  std::int64_t total_parameters = 0;
  std::int64_t trainable_parameters = 0;
};

}  // namespace longhaul::metrics
