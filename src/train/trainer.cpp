#include "train/trainer.h"

#include <fmt/format.h>

#include <chrono>

namespace longhaul::train {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Whether something that happens every so often happens after `step` (from 1).
bool is_due(config::Interval interval, std::int64_t every, std::int64_t step, bool ends_epoch) {
  switch (interval) {
    case config::Interval::kSteps:
      return every > 0 && step % every == 0;
    case config::Interval::kEpoch:
      return ends_epoch;
    case config::Interval::kNo:
      break;
  }
  return false;
}

class Loop {
 public:
  explicit Loop(const TrainerParts& parts)
      : parts_(parts), output_(parts.step.config->output), total_(parts.schedule->total_steps()) {}

  TrainResult run() {
    if (output_.eval_on_start && parts_.start_step == 0) {
      evaluate(0, 0.0);
    }
    std::int64_t step = parts_.start_step;
    std::int64_t signal = 0;
    while (step < total_ && signal == 0) {
      signal = one_step(step);
      ++step;
    }
    return finish(step, signal);
  }

 private:
  /// Trains step `index` (from 0) and does what is due after it; the agreed stop signal.
  std::int64_t one_step(std::int64_t index) {
    const std::int64_t number = index + 1;
    parts_.hooks.step_begins(number);
    parts_.step.world->set_step(number);
    parts_.step.sp->set_step(number);
    const auto start = std::chrono::steady_clock::now();
    const data::StepPlan plan = parts_.schedule->step(index);
    const double rate = parts_.lr->at(index);
    const StepOutcome outcome =
        run_step(parts_.step, *parts_.train, plan, rate, parts_.hooks.stop_signal);
    const bool last = number == total_ || outcome.stop_signal != 0;
    const bool ends_epoch = plan.cursor.step + 1 == parts_.schedule->steps_per_epoch();
    const bool logged =
        last || number % output_.logging_steps == 0 || (output_.logging_first_step && index == 0);
    if (parts_.recorder != nullptr) {
      parts_.recorder->step({.global_step = number,
                             .epoch = plan.epoch_fraction,
                             .learning_rate = rate,
                             .seconds = seconds_since(start),
                             .outcome = outcome,
                             .is_logged = logged});
    }
    // An interrupted run saves what it has; it does not start a long evaluation first.
    if (eval_due(number, ends_epoch) && outcome.stop_signal == 0) {
      evaluate(number, plan.epoch_fraction);
    }
    if (last || is_due(output_.save_strategy, output_.save_steps, number, ends_epoch)) {
      save(number, plan.epoch_fraction);
    }
    parts_.hooks.step_ended(number);
    return outcome.stop_signal;
  }

  [[nodiscard]] bool eval_due(std::int64_t step, bool ends_epoch) const {
    if (parts_.validation == nullptr) {
      return false;
    }
    const config::Interval interval = output_.eval_strategy.value_or(output_.save_strategy);
    const std::int64_t every = output_.eval_steps.value_or(output_.save_steps);
    const bool off = output_.eval_strategy == config::Interval::kNo;
    return !off && (step == total_ || is_due(interval, every, step, ends_epoch));
  }

  void evaluate(std::int64_t step, double epoch) {
    if (parts_.validation == nullptr) {
      return;
    }
    parts_.hooks.activity("evaluation");
    const auto start = std::chrono::steady_clock::now();
    const EvalOutcome outcome = run_evaluation(parts_.step, *parts_.validation);
    last_eval_ = {step, outcome.loss};
    if (parts_.recorder != nullptr) {
      parts_.recorder->evaluation(outcome, epoch, step, seconds_since(start));
      parts_.hooks.say(fmt::format("evaluation at step {}: eval_loss {:.4f}, eval_token_acc {:.4f}",
                                   step, outcome.loss, outcome.token_acc));
    }
    parts_.hooks.activity("step");
  }

  void save(std::int64_t step, double epoch) {
    if (parts_.recorder == nullptr) {
      return;  // rank 0 alone writes; the weights are equal on all ranks
    }
    parts_.hooks.activity("save checkpoint");
    const std::optional<double> eval_loss =
        last_eval_ && last_eval_->first == step ? std::optional(last_eval_->second) : std::nullopt;
    parts_.checkpoints->save({.global_step = step,
                              .epoch = epoch,
                              .max_steps = total_,
                              .eval_loss = eval_loss,
                              .log_history = &parts_.recorder->log_history()});
    parts_.hooks.activity("step");
  }

  TrainResult finish(std::int64_t step, std::int64_t signal) {
    TrainResult result{.summary = parts_.checkpoints->summary(), .stop_signal = signal};
    result.summary.global_step = step;
    result.summary.total_parameters = parts_.step.parameters->total_elements();
    result.summary.trainable_parameters = parts_.step.parameters->trainable_elements();
    if (parts_.recorder != nullptr) {
      parts_.recorder->finish(result.summary);
    }
    return result;
  }

  const TrainerParts& parts_;
  const config::OutputOptions& output_;
  std::int64_t total_;
  std::optional<std::pair<std::int64_t, double>> last_eval_;  // step, loss
};

}  // namespace

TrainResult train(const TrainerParts& parts) { return Loop(parts).run(); }

}  // namespace longhaul::train
