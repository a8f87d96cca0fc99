// Checkpoints of a run: what is saved and when something is best. Rank 0 writes; every rank can
// resume.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/config.h"
#include "metrics/step_record.h"
#include "model/parameters.h"
#include "train/adapter_config.h"
#include "train/optimizer.h"
#include "train/trainer_state.h"

namespace longhaul::train {

/// What a run is, option by option: fields that must be equal to resume. Names are what the message
/// calls them.
using RunIdentity = base::OrderedJson;

/// Everything a checkpoint is made from; all outlive the writer.
struct CheckpointParts {
  const config::Config* config = nullptr;
  const model::Parameters* parameters = nullptr;
  const AdamW* optimizer = nullptr;
  std::filesystem::path run_folder;
  std::filesystem::path model_folder;    // configuration and tokenizer files are copied from here
  std::optional<AdapterConfig> adapter;  // absent: full weights
  base::Dtype weights_dtype = base::Dtype::kFloat32;
  RunIdentity identity;
};

/// One save.
struct SaveRequest {
  std::int64_t global_step = 0;
  double epoch = 0;
  std::int64_t max_steps = 0;
  std::optional<double> eval_loss;  // of an evaluation at this very step
  const std::vector<HistoryEntry>* log_history = nullptr;
};

class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointParts parts) : parts_(std::move(parts)) {}

  /// Goes on from `checkpoint` of an earlier run: it is the last one and `state` names the best one
  /// until this run saves.
  void continue_from(const TrainerState& state, const std::filesystem::path& checkpoint);
  /// Writes `checkpoint-N` whole or not at all, updates links, removes what --save_total_limit
  /// allows.
  void save(const SaveRequest& request);
  /// Last and best so far.
  [[nodiscard]] metrics::RunSummary summary() const;

 private:
  void write_files(const std::filesystem::path& folder, const SaveRequest& request,
                   const std::filesystem::path& final_path) const;

  CheckpointParts parts_;
  std::string last_;
  std::string best_;
  std::optional<double> best_metric_;
};

/// Writes training_state.json: the identity of the run and where it stands.
void write_training_state(const std::filesystem::path& folder, const RunIdentity& identity,
                          std::int64_t global_step);

/// Step of a checkpoint whose identity equals `identity`; UserError listing every field that
/// differs.
std::int64_t check_resumable(const std::filesystem::path& checkpoint, const RunIdentity& identity);

}  // namespace longhaul::train
