// Which samples a step trains. The order depends on the seeds, the epoch and the data alone, never
// on ranks: step t of an epoch trains sequences [t·G, (t+1)·G) of that epoch's order, and
// micro-batch m of data-parallel group g holds the sequences t·G + (m·dp + g)·B + b. A sequence is
// a packed row with --packing, else one sample. Rows are packed once; every epoch shuffles their
// order anew. Everything is a pure function of the step number, so a run resumes at any step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/packer.h"
#include "data/token_store.h"

namespace longhaul::data {

/// Where a run stands; a pure function of the global step.
struct Cursor {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // inside the epoch
  bool operator==(const Cursor&) const = default;
};

/// Sample numbers of one micro-batch of one group, in order; may be empty at the end of an epoch.
using SampleList = std::vector<std::int64_t>;

/// One optimizer step. Invariant: micros.size() = accumulation, each micros[m].size() = dp.
struct StepPlan {
  std::int64_t global_step = 0;
  Cursor cursor;
  double epoch_fraction = 0;       // epochs done when this step is done
  std::int64_t num_sequences = 0;  // G, or less in the last step of an epoch
  std::vector<std::vector<SampleList>> micros;
};

class TrainSchedule {
 public:
  /// `config` gives packing, seeds, batch, accumulation, mesh, epochs. `train` must outlive the
  /// schedule.
  TrainSchedule(const TokenStore& train, const config::Config& config);

  [[nodiscard]] std::int64_t num_sequences() const { return rows_.num_rows(); }
  [[nodiscard]] std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// --max_steps, else ceil(num_train_epochs · steps_per_epoch).
  [[nodiscard]] std::int64_t total_steps() const { return total_steps_; }
  [[nodiscard]] Cursor cursor(std::int64_t global_step) const;
  /// The plan of a step from 0; steps beyond total_steps() are fine (epochs repeat). Keeps the
  /// order of the last epoch asked for, so one instance is used by one thread.
  [[nodiscard]] StepPlan step(std::int64_t global_step);
  /// Upper bound of the tokens of any micro-batch of the run: the batch size times the longest
  /// sequences.
  [[nodiscard]] std::int64_t largest_batch_tokens() const;
  /// Σ len² / Σ len of the samples: how far a token attends on average, twice.
  [[nodiscard]] double attended_length() const;
  [[nodiscard]] const PackedRows& rows() const { return rows_; }
  /// Names everything the order depends on (data apart), to compare runs.
  [[nodiscard]] std::string identity() const;

 private:
  [[nodiscard]] std::int64_t row_tokens(std::int64_t row) const;
  void load_epoch(std::int64_t epoch);

  const TokenStore* train_;
  PackedRows rows_;
  bool shuffle_ = true;
  bool packed_ = false;
  std::int64_t row_length_ = 0;
  config::PackingStrategy strategy_ = config::PackingStrategy::kBinpack;
  std::uint64_t seed_ = 0;
  std::int64_t batch_ = 1;
  std::int64_t accumulation_ = 1;
  std::int64_t dp_ = 1;
  std::int64_t steps_per_epoch_ = 0;
  std::int64_t total_steps_ = 0;
  std::int64_t loaded_epoch_ = -1;
  std::vector<std::int64_t> order_;  // of loaded_epoch_
};

/// The validation set in order, every row once, dealt to the groups batch by batch.
class EvalSchedule {
 public:
  EvalSchedule(const TokenStore& validation, const config::Config& config);

  /// Rounds in which every group gets one (possibly empty) batch.
  [[nodiscard]] std::int64_t num_rounds() const;
  /// Sample numbers per group.
  [[nodiscard]] std::vector<SampleList> round(std::int64_t index) const;

 private:
  std::int64_t size_;
  std::int64_t batch_;
  std::int64_t dp_;
};

}  // namespace longhaul::data
