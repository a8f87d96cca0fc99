// Lets checkpoint_oracle.py drive the C++ side:
//   write-config FOLDER BASE_MODEL   an adapter_config.json with fixed values
//   write-regex FOLDER BASE_MODEL    the same with an expression as target
//   read-config FOLDER               what the reader understands, as JSON
//   rename FOLDER                    every adapter tensor's name, parsed and put together again
//   write-state FOLDER               a trainer_state.json with fixed values
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "metrics/step_record.h"
#include "train/adapter_config.h"
#include "train/trainer_state.h"

namespace {

using longhaul::base::OrderedJson;
namespace train = longhaul::train;

train::AdapterConfig fixed_config(const std::string& base_model) {
  return {.base_model = base_model,
          .rank = 4,
          .alpha = 6.5,
          .dropout = 0.05,
          .use_rslora = true,
          .target_modules = {"q_proj", "down_proj"},
          .modules_to_save = {"lm_head"}};
}

void print_config(const train::AdapterConfig& config) {
  OrderedJson json;
  json["base_model"] = config.base_model;
  json["rank"] = config.rank;
  json["alpha"] = config.alpha;
  json["dropout"] = config.dropout;
  json["use_rslora"] = config.use_rslora;
  json["target_modules"] = config.target_modules;
  json["target_regex"] =
      config.target_regex ? OrderedJson(*config.target_regex) : OrderedJson(nullptr);
  json["modules_to_save"] = config.modules_to_save;
  std::puts(json.dump().c_str());
}

void rename_all(const std::string& folder) {
  const longhaul::base::SafetensorsReader reader(folder + "/" + train::kAdapterWeightsFile);
  for (const auto& [name, view] : reader.tensors()) {
    const auto tensor = train::parse_adapter_tensor_name(name);
    std::puts((tensor ? train::adapter_tensor_name(tensor->part, tensor->target) + " " +
                            std::to_string(static_cast<int>(tensor->part)) + " " + tensor->target
                      : "unknown " + name)
                  .c_str());
  }
}

void write_state(const std::string& folder) {
  longhaul::metrics::StepRecord step;
  step.loss = 0.5;
  step.global_step = 2;
  step.max_steps = 3;
  longhaul::metrics::EvalRecord eval;
  eval.eval_loss = 0.25;
  eval.global_step = 3;
  eval.max_steps = 3;
  train::write_trainer_state(folder, {.global_step = 3,
                                      .max_steps = 3,
                                      .epoch = 0.75,
                                      .num_train_epochs = 1,
                                      .best_metric = 0.25,
                                      .best_model_checkpoint = "/run/checkpoint-3",
                                      .logging_steps = 1,
                                      .eval_steps = 3,
                                      .save_steps = 3,
                                      .log_history = {step, eval}});
}

int run(const std::vector<std::string>& args) {
  const std::string command = args.empty() ? "" : args[0];
  if (command == "write-config" && args.size() == 3) {
    train::write_adapter_config(args[1], fixed_config(args[2]));
  } else if (command == "write-regex" && args.size() == 3) {
    train::AdapterConfig config = fixed_config(args[2]);
    config.target_modules.clear();
    config.target_regex = ".*\\.(q|v)_proj";
    config.modules_to_save.clear();
    train::write_adapter_config(args[1], config);
  } else if (command == "read-config" && args.size() == 2) {
    print_config(train::read_adapter_config(args[1]));
  } else if (command == "rename" && args.size() == 2) {
    rename_all(args[1]);
  } else if (command == "write-state" && args.size() == 2) {
    write_state(args[1]);
  } else {
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const longhaul::base::UserError& error) {
    std::fputs(error.what(), stderr);
    return 2;
  }
}
