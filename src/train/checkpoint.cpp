#include "train/checkpoint.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/path_state.h"
#include "config/options.h"
#include "config/version.h"
#include "train/checkpoint_files.h"
#include "train/run_folder.h"
#include "train/weight_files.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrainingStateFile = "training_state.json";

/// Files of the base model that a full checkpoint needs to be loaded on its own.
constexpr const char* kModelFiles[] = {
    "config.json",       "generation_config.json",  "tokenizer.json", "tokenizer_config.json",
    "tokenizer.model",   "special_tokens_map.json", "vocab.json",     "merges.txt",
    "added_tokens.json", "chat_template.jinja"};

void copy_model_files(const fs::path& from, const fs::path& to) {
  for (const char* name : kModelFiles) {
    if (base::path_exists(from / name, "--model")) {
      base::write_file_atomically(to / name, base::read_file(from / name));
    }
  }
}

/// config.json names the type that the weights are saved in.
void write_model_dtype(const fs::path& folder, base::Dtype dtype) {
  const fs::path path = folder / "config.json";
  base::OrderedJson json = base::parse_ordered_json(base::read_file(path), path.string());
  const char* key =
      json.contains("dtype") && !json.contains("torch_dtype") ? "dtype" : "torch_dtype";
  json[key] = base::dtype_name(dtype);
  base::write_file_atomically(path, json.dump(2) + "\n");
}

std::string text_of(const base::OrderedJson& value) {
  if (value.is_null()) {
    return "nothing";
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

void write_training_state(const fs::path& folder, const RunIdentity& identity,
                          std::int64_t global_step) {
  const base::OrderedJson json = {{"global_step", global_step}, {"identity", identity}};
  base::write_file_atomically(folder / kTrainingStateFile, json.dump(2) + "\n");
}

std::int64_t check_resumable(const fs::path& checkpoint, const RunIdentity& identity) {
  const fs::path path = checkpoint / kTrainingStateFile;
  if (!base::path_exists(path, "--resume_from_checkpoint")) {
    throw base::UserError(base::Problem{
        .where = checkpoint.string(),
        .what = "the checkpoint has no training state",
        .hint = "It was written with --save_only_model; start from it with --adapters or --model"});
  }
  const base::OrderedJson json = base::parse_ordered_json(base::read_file(path), path.string());
  if (!json.is_object() || !json.contains("global_step") || !json.contains("identity")) {
    throw base::UserError(
        base::Problem{.where = path.string(), .what = "not the state of a training run"});
  }
  std::vector<base::Problem> problems;
  const base::OrderedJson& saved = json["identity"];
  const auto compare = [&](const std::string& name, const base::OrderedJson& now,
                           const base::OrderedJson& before) {
    if (before != now) {
      problems.push_back({.where = "--resume_from_checkpoint",
                          .what = name + " differs from the run that wrote " + checkpoint.string(),
                          .got = text_of(now),
                          .expected = text_of(before)});
    }
  };
  for (const auto& [name, value] : identity.items()) {
    compare(name, value, saved.value(name, base::OrderedJson()));
  }
  for (const auto& [name, value] : saved.items()) {
    if (!identity.contains(name)) {
      compare(name, base::OrderedJson(), value);
    }
  }
  if (!problems.empty()) {
    throw base::UserError(std::move(problems));
  }
  return json["global_step"].get<std::int64_t>();
}

void CheckpointWriter::continue_from(const TrainerState& state, const fs::path& checkpoint) {
  last_ = checkpoint.string();
  best_metric_ = state.best_metric;
  best_ = state.best_model_checkpoint;
}

void CheckpointWriter::write_files(const fs::path& folder, const SaveRequest& request,
                                   const fs::path& final_path) const {
  const config::Config& config = *parts_.config;
  if (parts_.adapter) {
    write_adapter_config(folder, *parts_.adapter);
    write_adapter_weights(folder, *parts_.parameters);
  } else {
    copy_model_files(parts_.model_folder, folder);
    write_model_dtype(folder, parts_.weights_dtype);
    write_full_weights(folder, *parts_.parameters, parts_.weights_dtype);
  }
  if (!config.output.save_only_model) {
    write_optimizer(folder, *parts_.parameters, *parts_.optimizer);
    write_training_state(folder, parts_.identity, request.global_step);
  }
  write_args_json(folder, config::options_json(config), config::program_version());
  TrainerState state{.global_step = request.global_step,
                     .max_steps = request.max_steps,
                     .epoch = request.epoch,
                     .num_train_epochs = config.train.num_train_epochs,
                     .best_metric = best_metric_,
                     .best_model_checkpoint = best_,
                     .logging_steps = config.output.logging_steps,
                     .eval_steps = config.output.eval_steps.value_or(config.output.save_steps),
                     .save_steps = config.output.save_steps,
                     .train_batch_size = config.train.per_device_train_batch_size,
                     .log_history = *request.log_history};
  if (request.eval_loss && (!best_metric_ || *request.eval_loss < *best_metric_)) {
    state.best_metric = request.eval_loss;
    state.best_model_checkpoint = final_path.string();
  }
  write_trainer_state(folder, state);
}

void CheckpointWriter::save(const SaveRequest& request) {
  const fs::path final_path = checkpoint_path(parts_.run_folder, request.global_step);
  PendingCheckpoint pending(parts_.run_folder, request.global_step);
  write_files(pending.path(), request, final_path);
  last_ = pending.publish().string();
  const bool best = request.eval_loss && (!best_metric_ || *request.eval_loss < *best_metric_);
  if (best) {
    best_metric_ = request.eval_loss;
    best_ = last_;
  }
  const config::OutputOptions& output = parts_.config->output;
  if (output.create_checkpoint_symlink) {
    point_symlink(parts_.run_folder, "last", last_);
    if (best) {
      point_symlink(parts_.run_folder, "best", best_);
    }
  }
  if (output.save_total_limit) {
    prune_checkpoints(parts_.run_folder, *output.save_total_limit, best_);
  }
}

metrics::RunSummary CheckpointWriter::summary() const {
  metrics::RunSummary summary;
  summary.last_model_checkpoint = last_;
  summary.best_model_checkpoint = best_;
  summary.best_metric = best_metric_;
  return summary;
}

}  // namespace longhaul::train
