#include "train/trainer_state.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "metrics/record_json.h"
#include "train/checkpoint_files.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;
using base::OrderedJson;

OrderedJson history_json(const HistoryEntry& entry) {
  return std::visit(
      [](const auto& record) {
        OrderedJson json = metrics::to_json(record);
        json["step"] = record.global_step;  // transformers' own key
        return json;
      },
      entry);
}

[[noreturn]] void refuse(const fs::path& path, std::string what) {
  throw base::UserError(base::Problem{.where = path.string(), .what = std::move(what)});
}

HistoryEntry read_history(const OrderedJson& json, const fs::path& path) {
  std::string reason;
  if (const auto line = metrics::from_json(json, reason)) {
    if (const auto* step = std::get_if<metrics::StepRecord>(&*line)) {
      return *step;
    }
    if (const auto* eval = std::get_if<metrics::EvalRecord>(&*line)) {
      return *eval;
    }
    reason = "a summary";
  }
  refuse(path, "wrong entry in log_history: " + reason);
}

template <typename Number>
Number read_number(const OrderedJson& json, const char* key, const fs::path& path) {
  const auto at = json.find(key);
  const bool fits = at != json.end() &&
                    (std::is_floating_point_v<Number> ? at->is_number() : at->is_number_integer());
  if (!fits) {
    refuse(path, fmt::format("'{}' is missing or no number", key));
  }
  return at->get<Number>();
}

}  // namespace

void write_trainer_state(const fs::path& folder, const TrainerState& state) {
  OrderedJson json;
  json["best_metric"] = state.best_metric && std::isfinite(*state.best_metric)
                            ? OrderedJson(*state.best_metric)
                            : OrderedJson(nullptr);
  json["best_model_checkpoint"] = state.best_model_checkpoint.empty()
                                      ? OrderedJson(nullptr)
                                      : OrderedJson(state.best_model_checkpoint);
  json["epoch"] = state.epoch;
  json["eval_steps"] = state.eval_steps;
  json["global_step"] = state.global_step;
  json["is_hyper_param_search"] = false;
  json["is_local_process_zero"] = true;
  json["is_world_process_zero"] = true;
  json["log_history"] = OrderedJson::array();
  for (const HistoryEntry& entry : state.log_history) {
    json["log_history"].push_back(history_json(entry));
  }
  json["logging_steps"] = state.logging_steps;
  json["max_steps"] = state.max_steps;
  json["num_input_tokens_seen"] = state.num_input_tokens_seen;
  // transformers holds whole epochs here, rounded up.
  json["num_train_epochs"] = static_cast<std::int64_t>(std::ceil(state.num_train_epochs));
  json["save_steps"] = state.save_steps;
  json["stateful_callbacks"] = OrderedJson::object();
  json["total_flos"] = state.total_flos;
  json["train_batch_size"] = state.train_batch_size;
  json["trial_name"] = nullptr;
  json["trial_params"] = nullptr;
  base::write_file_atomically(folder / kTrainerStateFile, json.dump(2) + "\n");
}

TrainerState read_trainer_state(const fs::path& folder) {
  const fs::path path = folder / kTrainerStateFile;
  const OrderedJson json = base::parse_ordered_json(base::read_file(path), path.string());
  if (!json.is_object()) {
    refuse(path, "not an object");
  }
  TrainerState state;
  state.global_step = read_number<std::int64_t>(json, "global_step", path);
  state.max_steps = read_number<std::int64_t>(json, "max_steps", path);
  state.epoch = read_number<double>(json, "epoch", path);
  state.num_train_epochs = read_number<double>(json, "num_train_epochs", path);
  state.logging_steps = read_number<std::int64_t>(json, "logging_steps", path);
  state.eval_steps = read_number<std::int64_t>(json, "eval_steps", path);
  state.save_steps = read_number<std::int64_t>(json, "save_steps", path);
  state.train_batch_size = read_number<std::int64_t>(json, "train_batch_size", path);
  state.num_input_tokens_seen = read_number<std::int64_t>(json, "num_input_tokens_seen", path);
  state.total_flos = read_number<double>(json, "total_flos", path);
  if (json.contains("best_metric") && !json.at("best_metric").is_null()) {
    state.best_metric = read_number<double>(json, "best_metric", path);
  }
  const auto best = json.find("best_model_checkpoint");
  if (best != json.end() && best->is_string()) {
    state.best_model_checkpoint = best->get<std::string>();
  }
  const auto history = json.find("log_history");
  if (history == json.end() || !history->is_array()) {
    refuse(path, "'log_history' is missing or no list");
  }
  for (const OrderedJson& entry : *history) {
    state.log_history.push_back(read_history(entry, path));
  }
  return state;
}

}  // namespace longhaul::train
