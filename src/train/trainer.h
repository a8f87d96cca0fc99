// The training loop: steps, logging, evaluation, checkpoints, stopping. No kernel, no file format,
// no option parsing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "config/config.h"
#include "data/schedule.h"
#include "data/token_store.h"
#include "metrics/step_record.h"
#include "train/checkpoint.h"
#include "train/lr_schedule.h"
#include "train/recorder.h"
#include "train/train_step.h"

namespace longhaul::train {

/// What the loop asks of its surroundings (signals, status pages); all calls are local.
struct TrainerHooks {
  /// Signal that asked this rank to stop (2, 15), 0: go on.
  std::function<std::int64_t()> stop_signal;
  std::function<void(std::int64_t step)> step_begins;  // global step from 1
  std::function<void(std::int64_t step)> step_ended;
  std::function<void(const std::string& activity)> activity;
  std::function<void(const std::string& line)> say;  // lines for people, rank 0
};

struct TrainerParts {
  StepParts step;
  const data::TokenStore* train = nullptr;
  const data::TokenStore* validation = nullptr;  // null: none
  data::TrainSchedule* schedule = nullptr;
  const LrSchedule* lr = nullptr;
  Recorder* recorder = nullptr;  // null on other ranks than 0
  CheckpointWriter* checkpoints = nullptr;
  std::int64_t start_step = 0;
  TrainerHooks hooks;
};

struct TrainResult {
  metrics::RunSummary summary;
  std::int64_t stop_signal = 0;  // 0: ran to the end
};

/// Runs until the last step or an agreed stop. Collective over the world.
TrainResult train(const TrainerParts& parts);

}  // namespace longhaul::train
