// Rank 0's records of a run: logging.jsonl, TensorBoard events, curves, the progress display and
// the log history of trainer_state.json. The loop tells what happened; nothing here feeds back into
// training.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "metrics/curves.h"
#include "metrics/jsonl_writer.h"
#include "metrics/log_window.h"
#include "metrics/progress.h"
#include "metrics/rates.h"
#include "metrics/step_record.h"
#include "metrics/tensorboard_writer.h"
#include "train/train_step.h"
#include "train/trainer_state.h"

namespace longhaul::train {

/// How progress reaches the user; the command decides between a bar and plain lines.
using ProgressSink = std::function<void(const metrics::Progress& progress, bool is_log_line)>;

struct RecorderOptions {
  at::Device device = at::kCPU;  // whose memory the log line shows
  std::filesystem::path run_folder;
  bool tensorboard = true;
  metrics::WindowConstants window;
  metrics::ModelSizes sizes;
  metrics::TrainingKind kind{};  // lm_head_share is each step's own
  std::int64_t max_steps = 0;
  std::int64_t start_step = 0;
  ProgressSink progress;
};

/// One step as the loop knows it.
struct StepNote {
  std::int64_t global_step = 0;  // from 1
  double epoch = 0;
  double learning_rate = 0;
  double seconds = 0;
  StepOutcome outcome;
  bool is_logged = false;
};

class Recorder {
 public:
  Recorder(RecorderOptions options, std::vector<HistoryEntry> log_history);

  void step(const StepNote& note);
  void evaluation(const EvalOutcome& outcome, double epoch, std::int64_t global_step,
                  double seconds);
  void finish(const metrics::RunSummary& summary);
  /// transformers' `log_history`, for trainer_state.json.
  [[nodiscard]] const std::vector<HistoryEntry>& log_history() const { return log_history_; }

 private:
  [[nodiscard]] std::uint64_t peak_bytes() const;
  /// Of a step, all devices together; nothing that runs again counts.
  [[nodiscard]] double model_flops(const StepOutcome& outcome) const;

  RecorderOptions options_;
  std::vector<HistoryEntry> log_history_;
  metrics::JsonlWriter jsonl_;
  std::unique_ptr<metrics::TensorBoardWriter> tensorboard_;
  metrics::Curves curves_;
  metrics::LogWindow window_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace longhaul::train
