// The lines that rank 0 shows before the first step: what will be trained, how it is cut, what it
// will need.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/model_config.h"
#include "data/dataset.h"
#include "data/schedule.h"
#include "model/parameters.h"
#include "plan/memory_plan.h"
#include "train/run_setup.h"

namespace longhaul::train {

struct StartFacts {
  const config::Config& config;
  const config::ModelConfig& model;
  const model::Parameters& parameters;
  const plan::MemoryPlan& plan;
  const TextSetup& text;
  const data::DatasetReport& data;
  const data::TrainSchedule& schedule;
  base::Dtype dtype;
  at::Device device = at::kCPU;
};

std::vector<std::string> start_lines(const StartFacts& facts);

}  // namespace longhaul::train
