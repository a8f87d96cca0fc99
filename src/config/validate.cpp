#include "config/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/path_state.h"
#include "config/activation_policy.h"
#include "config/bench_rules.h"
#include "config/degree.h"
#include "config/named_models.h"
#include "config/rules.h"
#include "config/sharding.h"

namespace longhaul::config {
namespace {

using Problems = std::vector<base::Problem>;

/// Sequences per step that gradient accumulation reaches when it is not given.
constexpr std::int64_t kSequencesPerStep = 16;

/// Runs `check` and takes what it throws as faults.
template <typename Check>
void collect(Problems& problems, const Check& check) {
  try {
    check();
  } catch (const base::UserError& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  }
}

bool is_full(const Config& config) { return config.tuning.train_type == "full"; }

/// Values that follow from the options alone.
void decide_plain_defaults(Config& config) {
  if (config.model.attn_impl == "flash_attention_2") {
    config.model.attn_impl = "flash_attn";
  }
  if (config.memory.gradient_checkpointing == false) {
    config.memory.activation_policy = "A";
  }
  const bool validates = !config.data.val_dataset.empty() || config.data.split_dataset_ratio > 0;
  if (!config.output.eval_strategy) {
    config.output.eval_strategy = validates ? config.output.save_strategy : Interval::kNo;
  }
  config.output.eval_steps = config.output.eval_steps.value_or(config.output.save_steps);
  config.learning_rate = config.train.learning_rate.value_or(is_full(config) ? 1e-5 : 1e-4);
  config.train.learning_rate = config.learning_rate;
  if (!is_full(config) && config.tuning.adapters.empty() && describes_training(config.command)) {
    config.tuning.lora_rank = config.tuning.lora_rank.value_or(8);
    config.tuning.lora_alpha = config.tuning.lora_alpha.value_or(32);
    config.tuning.lora_dropout = config.tuning.lora_dropout.value_or(0.05);
    config.tuning.use_rslora = config.tuning.use_rslora.value_or(false);
  }
}

/// Values that need the mesh and the lengths.
void decide_training(Config& config) {
  const std::int64_t per_micro_batch = config.train.per_device_train_batch_size * config.mesh.dp;
  config.accumulation = config.train.gradient_accumulation_steps.value_or(
      std::max<std::int64_t>(1, base::ceil_div(kSequencesPerStep, per_micro_batch)));
  config.train.gradient_accumulation_steps = config.accumulation;
  config.parallel.sequence_parallel_size = config.mesh.sp;
  config.parallel.ulysses = config.parallel.ulysses.value_or(config.mesh.sp > 1);
  const std::string sharding = sharding_option(config);
  if (describes_training(config.command) && !sharding.empty() && config.mesh.ranks() == 1) {
    config.notes.push_back(sharding + ": no effect on one rank, which holds all weights");
  }
}

void check_against_model(Config& config, const ModelConfig& model, Problems& problems) {
  if (config.command == Command::kBench) {
    check_device_rules(config, model.dtype, problems);
    decide_bench(config, model, problems);
    return;
  }
  decide_lengths(config, model, problems);
  check_device_rules(config, model.dtype, problems);
  if (!describes_training(config.command)) {
    return;
  }
  decide_mesh(config, model, problems);
  // A malformed value is already a fault of the option rules.
  if (parse_activation_policy(config.memory.activation_policy)) {
    collect(problems, [&] {
      activation_policy_of_layers(config.memory.activation_policy, model.num_layers);
    });
  }
  if (is_full(config) || config.tuning.adapters.empty()) {
    collect(problems, [&] { build_registry(model, tuning_spec(config, model)); });
  }
}

/// What was accepted without effect is said once.
void note_no_effect(Config& config) {
  if (!config.no_effect.empty()) {
    config.notes.push_back(
        fmt::format("No effect in this program: --{}", fmt::join(config.no_effect, " --")));
  }
}

void throw_if_any(Problems problems) {
  if (!problems.empty()) {
    throw base::UserError(std::move(problems));
  }
}

/// The machine's part comes last, so that a run on the wrong machine still lists what is wrong with
/// its options.
void check_machine(const Config& config) {
  if (computes(config.command) && config.model.device == DeviceChoice::kCuda &&
      config.launch.usable_gpus == 0) {
    throw base::SystemError({.where = "--device",
                             .what = "no GPU that this build can use",
                             .got = "cuda",
                             .expected = {},
                             .hint = "longhaul doctor says why; --device cpu computes here"});
  }
}

Config start(const ParsedOptions& parsed, const LaunchInfo& launch, Problems& problems) {
  Config config = parsed.config;
  config.launch = launch;
  problems = parsed.problems;
  check_option_rules(config, problems);
  return config;
}

bool needs_model(const Config& config) {
  if (config.command == Command::kData) {
    return config.data_command.tokenize.empty();
  }
  return !config.model.model.empty();
}

ModelConfig read_model(const std::string& model) {
  if (!base::is_folder(model, "--model")) {
    const bool hub_id = std::count(model.begin(), model.end(), '/') == 1 && model.front() != '/' &&
                        model.front() != '.' && model.back() != '/';
    throw base::UserError(
        {.where = "--model",
         .what = base::path_exists(model, "--model") ? "not a folder" : "no such folder",
         .got = model,
         .expected = "a folder with config.json, tokenizer.json and safetensors",
         .hint = hub_id ? "Downloading from a hub is not available yet: download it first" : ""});
  }
  return read_model_config(model);
}

}  // namespace

Config resolve(const ParsedOptions& parsed, const ModelConfig& model, const LaunchInfo& launch) {
  Problems problems;
  Config config = start(parsed, launch, problems);
  decide_plain_defaults(config);
  check_against_model(config, model, problems);
  throw_if_any(std::move(problems));
  check_machine(config);
  config.model.torch_dtype = config.model.torch_dtype.value_or(model.dtype);
  config.data.max_length = config.max_length;
  decide_training(config);
  note_no_effect(config);
  for (const std::string& key : model.unknown_keys) {
    config.notes.push_back(key + ": unknown key, not used");
  }
  return config;
}

Config resolve_without_model(const ParsedOptions& parsed, const LaunchInfo& launch) {
  Problems problems;
  Config config = start(parsed, launch, problems);
  decide_plain_defaults(config);
  check_device_rules(config, base::Dtype::kFloat32, problems);
  throw_if_any(std::move(problems));
  check_machine(config);
  note_no_effect(config);
  return config;
}

Config load_config(const ParsedOptions& parsed, const LaunchInfo& launch) {
  const BenchOptions& bench = parsed.config.bench;
  if (parsed.config.model.model.empty() && find_named_model(bench.shape)) {
    return resolve(parsed, *find_named_model(bench.shape), launch);
  }
  if (!needs_model(parsed.config) || parsed.config.model.model.empty()) {
    return resolve_without_model(parsed, launch);
  }
  Problems problems;
  ModelConfig model;
  collect(problems, [&] { model = read_model(parsed.config.model.model); });
  if (problems.empty()) {
    return resolve(parsed, model, launch);
  }
  // Without the model its rules cannot be checked; the options' own faults are listed beside the
  // model's.
  Problems all;
  start(parsed, launch, all);
  all.insert(all.end(), problems.begin(), problems.end());
  throw base::UserError(std::move(all));
}

TuningSpec tuning_spec(const Config& config, const ModelConfig& model) {
  const TuningOptions& tuning = config.tuning;
  TuningSpec spec;
  spec.full = is_full(config);
  if (!spec.full) {
    LoraSpec lora;
    lora.rank = tuning.lora_rank.value_or(lora.rank);
    lora.alpha = tuning.lora_alpha.value_or(lora.alpha);
    lora.dropout = tuning.lora_dropout.value_or(lora.dropout);
    lora.rslora = tuning.use_rslora.value_or(false);
    lora.target_modules =
        resolve_target_modules(model, tuning.target_modules, tuning.modules_to_save);
    lora.modules_to_save = tuning.modules_to_save;
    spec.lora = std::move(lora);
    return spec;
  }
  spec.freeze_prefixes = tuning.freeze_parameters;
  spec.freeze_regex = tuning.freeze_parameters_regex;
  spec.freeze_ratio = tuning.freeze_parameters_ratio;
  spec.trainable_prefixes = tuning.trainable_parameters;
  spec.trainable_regex = tuning.trainable_parameters_regex;
  return spec;
}

}  // namespace longhaul::config
