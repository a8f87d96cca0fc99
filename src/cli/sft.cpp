// `longhaul sft` and `longhaul pt`: one rank of a training run, from the validated Config to the
// last line.
#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"
#include "cli/data_environment.h"
#include "cli/launch.h"
#include "cli/print.h"
#include "dist/stop_request.h"
#include "metrics/progress.h"
#include "train/run.h"

namespace longhaul::cli {
namespace {

/// Progress of rank 0: a bar that is redrawn on a terminal, plain lines elsewhere.
class Display {
 public:
  explicit Display(std::int64_t columns) : columns_(columns) {}

  void line(const std::string& text) {
    clear_bar();
    print_text(stdout, text + '\n');
  }

  void progress(const metrics::Progress& progress, bool is_log_line) {
    if (columns_ > 0) {
      print_text(stdout,
                 "\r\x1b[K" + metrics::progress_bar(progress, static_cast<int>(columns_) - 1));
      bar_shown_ = true;
      if (progress.step == progress.max_steps) {
        clear_bar();
      }
    } else if (is_log_line) {
      print_text(stdout, metrics::progress_line(progress) + '\n');
    }
  }

 private:
  void clear_bar() {
    if (bar_shown_) {
      print_text(stdout, "\n");
      bar_shown_ = false;
    }
  }

  std::int64_t columns_;
  bool bar_shown_ = false;
};

train::TrainerHooks make_hooks(RankSession& session, Display& display) {
  dist::RankStatus& status = session.status();
  return {.stop_signal = [] { return std::int64_t{dist::stop_requested().signal}; },
          .step_begins = [&status](std::int64_t step) { status.set_step(step); },
          .step_ended =
              [&status](std::int64_t step) {
                status.step_has_ended(step);
                dist::first_step_has_ended();
              },
          .activity = [&status](const std::string& activity) { status.set_activity(activity); },
          .say = [&display](const std::string& line) { display.line(line); }};
}

}  // namespace

int run_sft(const config::Config& config, RankSession& session) {
  session.install_stop_handlers();
  Display display(session.terminal_columns());
  const train::RunSurroundings surroundings{
      .data = data_environment(config),
      .observer = &session.status(),
      .hooks = make_hooks(session, display),
      .progress = [&display](const metrics::Progress& progress, bool is_log_line) {
        display.progress(progress, is_log_line);
      }};
  const train::RunResult result = train::run_training(config, surroundings);
  if (config.launch.rank == 0) {
    display.line("last checkpoint: " + result.summary.last_model_checkpoint);
    if (!result.summary.best_model_checkpoint.empty()) {
      display.line(fmt::format("best checkpoint: {} (eval_loss {:.4f})",
                               result.summary.best_model_checkpoint,
                               result.summary.best_metric.value_or(0)));
    }
  }
  return result.stop_signal == 0 ? 0 : 128 + static_cast<int>(result.stop_signal);
}

}  // namespace longhaul::cli
