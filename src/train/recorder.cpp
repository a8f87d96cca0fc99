#include "train/recorder.h"

#include "metrics/memory.h"
#include "metrics/rates.h"
#include "ops/backend.h"

namespace longhaul::train {

Recorder::Recorder(RecorderOptions options, std::vector<HistoryEntry> log_history)
    : options_(std::move(options)),
      log_history_(std::move(log_history)),
      jsonl_(options_.run_folder / "logging.jsonl"),
      window_(options_.window),
      start_(std::chrono::steady_clock::now()) {
  if (options_.tensorboard) {
    const auto resumed =
        options_.start_step > 0 ? std::optional(options_.start_step) : std::nullopt;
    tensorboard_ =
        std::make_unique<metrics::TensorBoardWriter>(options_.run_folder / "runs", resumed);
  }
}

void Recorder::step(const StepNote& note) {
  const StepOutcome& outcome = note.outcome;
  window_.add({.loss = outcome.loss,
               .grad_norm = outcome.grad_norm,
               .learning_rate = note.learning_rate,
               .tokens = outcome.tokens,
               .target_tokens = outcome.target_tokens,
               .correct_tokens = outcome.correct_tokens,
               .seconds = note.seconds,
               .comm_wait_s = outcome.comm_wait_s,
               .comm_bytes = outcome.comm_bytes,
               .comm_busy_s = outcome.comm_busy_s,
               .model_flops = model_flops(outcome)});
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const std::int64_t done = note.global_step - options_.start_step;
  const double remaining =
      metrics::remaining_seconds(elapsed.count(), done, options_.max_steps - note.global_step);
  metrics::Progress progress{.step = note.global_step,
                             .max_steps = options_.max_steps,
                             .loss = outcome.loss,
                             .elapsed_s = elapsed.count(),
                             .remaining_s = remaining};
  if (note.is_logged) {
    metrics::StepRecord record = window_.take();
    record.epoch = note.epoch;
    record.global_step = note.global_step;
    record.max_steps = options_.max_steps;
    record.elapsed_s = elapsed.count();
    record.remaining_s = remaining;
    record.memory_gib = metrics::gib(peak_bytes());
    record.host_memory_gib = metrics::gib(metrics::resident_bytes());
    record.train_speed_s_per_it = done > 0 ? elapsed.count() / static_cast<double>(done) : 0;
    jsonl_.write(record);
    if (tensorboard_) {
      tensorboard_->write(record);
    }
    curves_.add(record);
    log_history_.emplace_back(record);
    progress = metrics::progress_of(record);
  }
  if (options_.progress) {
    options_.progress(progress, note.is_logged);
  }
}

/// The LM head works on target rows alone.
double Recorder::model_flops(const StepOutcome& outcome) const {
  const auto tokens = static_cast<double>(outcome.tokens);
  metrics::TrainingKind kind = options_.kind;
  kind.lm_head_share =
      outcome.tokens > 0 ? static_cast<double>(outcome.target_tokens) / tokens : 0.0;
  return tokens * metrics::flops_per_token(options_.sizes, kind, outcome.attended_length);
}

/// On a GPU its tensors', on the CPU those of the whole process.
std::uint64_t Recorder::peak_bytes() const {
  if (options_.device.is_cpu()) {
    return metrics::peak_resident_bytes();
  }
  return static_cast<std::uint64_t>(ops::backend_of(options_.device).memory().peak_bytes);
}

void Recorder::evaluation(const EvalOutcome& outcome, double epoch, std::int64_t global_step,
                          double seconds) {
  const metrics::EvalRecord record{.eval_loss = outcome.loss,
                                   .eval_token_acc = outcome.token_acc,
                                   .eval_runtime_s = seconds,
                                   .epoch = epoch,
                                   .global_step = global_step,
                                   .max_steps = options_.max_steps};
  jsonl_.write(record);
  if (tensorboard_) {
    tensorboard_->write(record);
  }
  curves_.add(record);
  log_history_.emplace_back(record);
}

void Recorder::finish(const metrics::RunSummary& summary) {
  jsonl_.write(summary);
  curves_.draw(options_.run_folder / "images");
}

}  // namespace longhaul::train
