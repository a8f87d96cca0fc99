// Records with awkward numbers, for every test that writes or reads them.
#pragma once

#include "metrics/step_record.h"

namespace longhaul::metrics {

inline StepRecord sample_step(std::int64_t step = 12) {
  return {.loss = 0.1 + 0.2,  // 0.30000000000000004
          .grad_norm = 1.0 / 3.0,
          .learning_rate = 9.9999999999999e-5,
          .token_acc = 0.5,
          .epoch = 1e-300,
          .global_step = step,
          .max_steps = 100,
          .elapsed_s = 63.7,
          .remaining_s = 7322,
          .memory_gib = 3.141592653589793,
          .train_speed_s_per_it = 5e-324,
          .tokens = 9'007'199'254'740'993,  // not representable as a double
          .target_tokens = 1234,
          .tokens_per_second = 1.7976931348623157e308,
          .tokens_per_second_per_device = 12345.678,
          .mfu = 0.4567,
          .host_memory_gib = 2.5,
          .comm_share = 0.02,
          .comm_gb_per_s = 123.456,
          .sp = 2,
          .dp = 4};
}

inline EvalRecord sample_eval(std::int64_t step = 12) {
  return {.eval_loss = 2.0 / 3.0,
          .eval_token_acc = 0.25,
          .eval_runtime_s = 1.5,
          .epoch = 0.75,
          .global_step = step,
          .max_steps = 100};
}

inline RunSummary sample_summary() {
  return {.last_model_checkpoint = "/out/v0/checkpoint-100",
          .best_model_checkpoint = "/out/v0/checkpoint-50",
          .best_metric = 2.0 / 3.0,
          .global_step = 100,
          .total_parameters = 134'515'008,
          .trainable_parameters = 4'884'480};
}

}  // namespace longhaul::metrics
