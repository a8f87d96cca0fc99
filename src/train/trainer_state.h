// trainer_state.json in the shape of transformers' TrainerState: only keys that every version of it
// knows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "metrics/step_record.h"

namespace longhaul::train {

/// One entry of log_history.
using HistoryEntry = std::variant<metrics::StepRecord, metrics::EvalRecord>;

struct TrainerState {
  std::int64_t global_step = 0;
  std::int64_t max_steps = 0;
  double epoch = 0;
  double num_train_epochs = 0;
  /// Lowest eval_loss and the absolute path of its checkpoint; absent / empty without evaluation.
  std::optional<double> best_metric{};
  std::string best_model_checkpoint{};
  std::int64_t logging_steps = 0;
  std::int64_t eval_steps = 0;
  std::int64_t save_steps = 0;
  std::int64_t train_batch_size = 1;
  std::int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  std::vector<HistoryEntry> log_history{};
};

/// Writes `folder/trainer_state.json`.
void write_trainer_state(const std::filesystem::path& folder, const TrainerState& state);
/// Reads it back (times of log_history in whole seconds); UserError naming file and key.
TrainerState read_trainer_state(const std::filesystem::path& folder);

}  // namespace longhaul::train
