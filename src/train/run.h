// The composition root: builds the parts of a training run from a Config, in order, and runs it.
#pragma once

#include <functional>
#include <string>

#include "config/config.h"
#include "data/dataset.h"
#include "dist/operation_observer.h"
#include "train/recorder.h"
#include "train/trainer.h"

namespace longhaul::train {

/// What the command lends to a run; nothing of it is read from the environment here.
struct RunSurroundings {
  data::DataEnvironment data;
  dist::OperationObserver* observer = nullptr;  // sees every collective
  TrainerHooks hooks;
  ProgressSink progress;
};

struct RunResult {
  metrics::RunSummary summary;
  std::int64_t stop_signal = 0;
  std::string run_folder;  // rank 0 only
};

/// Trains as `config` says. Collective over config.mesh.ranks() processes.
RunResult run_training(const config::Config& config, const RunSurroundings& surroundings);

}  // namespace longhaul::train
