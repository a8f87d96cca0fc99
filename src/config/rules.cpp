// One small function per rule; each adds what it finds. Rules speak of options as the user wrote
// them.
#include "config/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/activation_policy.h"
#include "config/bench_rules.h"
#include "config/sharding.h"

namespace longhaul::config {
namespace {

using Problems = std::vector<base::Problem>;

std::string given_text(const Config& config, const std::string& option) {
  const auto found = config.given.find(option);
  return found == config.given.end() ? std::string() : found->second;
}

void contradiction(const Config& config, Problems& problems, const std::string& option,
                   std::string what, std::string hint = {}) {
  problems.push_back({.where = "--" + option,
                      .what = std::move(what),
                      .got = given_text(config, option),
                      .expected = {},
                      .hint = std::move(hint)});
}

void check_required(const Config& config, Problems& problems) {
  const bool may_take_adapter =
      config.command == Command::kInfer || config.command == Command::kExport;
  const bool needs_model = config.command != Command::kBench;  // bench_rules.cpp
  if (needs_model && !is_given(config, "model") &&
      !(may_take_adapter && is_given(config, "adapters"))) {
    problems.push_back({.where = "--model",
                        .what = may_take_adapter ? "missing, and so is --adapters" : "missing",
                        .got = {},
                        .expected = "the folder of a model"});
  }
  const bool trains = is_training(config.command);
  const bool shows = config.command == Command::kData && !is_given(config, "tokenize");
  if ((trains || shows) && !is_given(config, "dataset")) {
    problems.push_back(
        {.where = "--dataset", .what = "missing", .got = {}, .expected = "one or more files"});
  }
}

void check_tokenize(const Config& config, Problems& problems) {
  if (!config.data_command.tokenize.empty() && !config.data_command.dump_tokens.empty()) {
    contradiction(config, problems, "tokenize", "one of --tokenize and --dump_tokens at a time");
  }
}

void check_export(const Config& config, Problems& problems) {
  if (config.command != Command::kExport) {
    return;
  }
  if (!config.export_model.merge_lora) {
    problems.push_back({.where = "--merge_lora",
                        .what = "nothing to export",
                        .got = given_text(config, "merge_lora"),
                        .expected = "true",
                        .hint = "Merging is the only conversion there is"});
  } else if (!is_given(config, "adapters")) {
    problems.push_back({.where = "--adapters",
                        .what = "missing",
                        .got = {},
                        .expected = "the checkpoint to merge"});
  }
}

void check_infer(const Config& config, Problems& problems) {
  if (config.command == Command::kInfer && !config.infer.result_path.empty() &&
      config.data.val_dataset.empty()) {
    contradiction(config, problems, "result_path", "there is no --val_dataset to answer");
  }
}

/// Options of one tuning type beside the other would change nothing.
void check_train_type(const Config& config, Problems& problems) {
  const bool full = config.tuning.train_type == "full";
  constexpr std::array<const char*, 8> kLora = {"lora_rank", "lora_alpha",     "lora_dropout",
                                                "lora_bias", "use_rslora",     "target_modules",
                                                "adapters",  "modules_to_save"};
  constexpr std::array<const char*, 5> kFull = {"freeze_parameters", "freeze_parameters_regex",
                                                "freeze_parameters_ratio", "trainable_parameters",
                                                "trainable_parameters_regex"};
  const auto refuse = [&](const char* option) {
    if (is_given(config, option)) {
      contradiction(config, problems, option,
                    fmt::format("has no meaning with --train_type {}", full ? "full" : "lora"),
                    fmt::format("Leave it out, or use --train_type {}", full ? "lora" : "full"));
    }
  };
  if (!describes_training(config.command)) {
    return;
  }
  if (full) {
    std::for_each(kLora.begin(), kLora.end(), refuse);
  } else {
    std::for_each(kFull.begin(), kFull.end(), refuse);
    const std::string galore = given_text(config, "galore");
    if (is_given(config, "train_type") && !galore.empty() && galore.front() != 'f' &&
        galore.front() != 'F') {
      contradiction(config, problems, "galore", "cannot be used with --train_type lora",
                    "GaLore is a way of full fine-tuning");
    }
  }
}

void check_data(const Config& config, Problems& problems) {
  if (config.data.truncation_strategy == TruncationStrategy::kSplit &&
      config.command != Command::kPt && config.model.use_chat_template) {
    contradiction(config, problems, "truncation_strategy", "only plain text can be cut up",
                  "Use longhaul pt, or left, right or delete");
  }
  for (const char* option : {"packing_length", "packing_strategy"}) {
    if (is_given(config, option) && !config.data.packing) {
      contradiction(config, problems, option, "needs --packing true");
    }
  }
  if (!config.data.val_dataset.empty() && config.data.split_dataset_ratio > 0) {
    contradiction(config, problems, "split_dataset_ratio", "--val_dataset is given, too",
                  "Leave out one of the two");
  }
  if (!config.model.use_chat_template && is_given(config, "system")) {
    contradiction(config, problems, "system", "plain text has no system message");
  }
}

void check_evaluation(const Config& config, Problems& problems) {
  if (!describes_training(config.command) || !config.data.val_dataset.empty() ||
      config.data.split_dataset_ratio > 0) {
    return;
  }
  const std::string hint = "Give --val_dataset or --split_dataset_ratio";
  if (config.output.eval_strategy && *config.output.eval_strategy != Interval::kNo) {
    contradiction(config, problems, "eval_strategy", "there is nothing to evaluate on", hint);
  }
  if (config.output.eval_on_start) {
    contradiction(config, problems, "eval_on_start", "there is nothing to evaluate on", hint);
  }
}

/// transformers' arguments: num_cycles for both cosines, and one of min_lr and min_lr_rate for
/// cosine_with_min_lr.
void check_schedule_arguments(const Config& config, Problems& problems) {
  const auto& kwargs = config.train.lr_scheduler_kwargs;
  const bool with_min = config.train.lr_scheduler_type == Schedule::kCosineWithMinLr;
  if (!with_min && config.train.lr_scheduler_type != Schedule::kCosine) {
    if (!kwargs.empty()) {
      contradiction(config, problems, "lr_scheduler_kwargs",
                    "only cosine and cosine_with_min_lr take arguments");
    }
    return;
  }
  std::size_t minima = 0;
  bool valid = true;
  for (const auto& [key, value] : kwargs) {
    const bool is_rate = key == "min_lr_rate";
    const bool is_minimum = with_min && (is_rate || key == "min_lr");
    minima += is_minimum ? 1 : 0;
    valid = valid && (is_minimum || key == "num_cycles") && value >= 0 && (!is_rate || value <= 1);
  }
  if (!valid || minima != (with_min ? 1 : 0)) {
    problems.push_back(
        {.where = "--lr_scheduler_kwargs",
         .what = with_min ? "cosine_with_min_lr takes one lowest rate" : "cosine takes num_cycles",
         .got = given_text(config, "lr_scheduler_kwargs"),
         .expected =
             with_min
                 ? R"({"min_lr": RATE} or {"min_lr_rate": SHARE from 0 to 1}, and "num_cycles" if wanted)"
                 : R"({"num_cycles": NUMBER}; 0.5 is half a cosine)"});
  }
}

void check_schedule(const Config& config, Problems& problems) {
  if (config.train.max_steps == 0) {
    contradiction(config, problems, "max_steps", "no step to train", "-1 means by epochs");
  }
  check_schedule_arguments(config, problems);
}

void check_report(const Config& config, Problems& problems) {
  const auto& targets = config.output.report_to;
  if (targets.size() > 1 && std::find(targets.begin(), targets.end(), "none") != targets.end()) {
    contradiction(config, problems, "report_to", "none beside something");
  }
}

void check_activations(const Config& config, Problems& problems) {
  const auto parts = parse_activation_policy(config.memory.activation_policy);
  if (!parts) {
    try {
      activation_policy_of_layers(config.memory.activation_policy, 0);
    } catch (const base::UserError& error) {
      problems.push_back(error.problems().front());
    }
    return;
  }
  const std::vector<PolicyPart> keep = {{0, {ActivationPreset::kA, false}}};
  if (config.memory.gradient_checkpointing == false && !parts->empty() && *parts != keep) {
    contradiction(
        config, problems, "gradient_checkpointing",
        fmt::format("--activation_policy {} drops activations", config.memory.activation_policy),
        "Leave out one of the two");
  }
}

/// One kind of sharding exists: of frozen weights, beside adapters.
void check_sharding(const Config& config, Problems& problems) {
  const ParallelOptions& parallel = config.parallel;
  const auto refuse = [&](const char* option, const char* accepted) {
    problems.push_back({.where = fmt::format("--{}", option),
                        .what = "not available yet",
                        .got = given_text(config, option),
                        .expected = accepted});
  };
  if (!parallel.deepspeed.empty() && parallel.deepspeed != "zero0" &&
      parallel.deepspeed != "zero3") {
    refuse("deepspeed", "zero0 | zero3");
  }
  if (!parallel.fsdp.empty() && parallel.fsdp != "fsdp2") {
    refuse("fsdp", "fsdp2");
  }
  const std::string option = sharding_option(config);
  if (option.empty()) {
    return;
  }
  const std::string name = option.substr(2, option.find(' ') - 2);
  if (config.tuning.train_type == "full") {
    contradiction(config, problems, name, "not available yet with --train_type full",
                  "It shards frozen weights: use it with LoRA");
  }
  if (name == "fsdp" && parallel.deepspeed == "zero3") {
    contradiction(config, problems, name, "--deepspeed zero3 asks for the same",
                  "Leave out one of the two");
  }
}

void check_attention(const Config& config, Problems& problems) {
  const std::string& kernel = config.model.attn_impl;
  if (config.model.use_flash_attn == true && kernel == "eager") {
    contradiction(config, problems, "use_flash_attn", "--attn_impl eager is not fused");
  }
  if (config.model.use_flash_attn == false && kernel.starts_with("flash_att")) {
    contradiction(config, problems, "use_flash_attn",
                  fmt::format("--attn_impl {} asks for it", kernel));
  }
}

/// CPU ranks have one attention kernel; asking for another one must not go unnoticed.
void check_kernel_on_cpu(const Config& config, Problems& problems) {
  const std::string& kernel = config.model.attn_impl;
  if (kernel == "cudnn" || kernel.starts_with("flash_att")) {
    contradiction(config, problems, "attn_impl", "runs on GPUs only, and the ranks are CPU ranks",
                  "Use auto or sdpa");
  } else if (kernel == "eager") {
    contradiction(config, problems, "attn_impl",
                  "not available: the CPU has one kernel, libtorch's fused one (sdpa)",
                  "Use auto or sdpa");
  }
  if (config.model.use_flash_attn == false) {
    contradiction(config, problems, "use_flash_attn",
                  "the CPU has one kernel, libtorch's fused one (sdpa)", "Leave it out");
  }
}

bool asks_for_offload(const Config& config) {
  const auto parts = parse_activation_policy(config.memory.activation_policy);
  return parts && std::any_of(parts->begin(), parts->end(),
                              [](const PolicyPart& part) { return part.policy.offload; });
}

/// What GPU ranks do not do yet; refused, so that nobody waits for it in vain.
void check_missing_on_gpu(const Config& config, base::Dtype dtype, Problems& problems) {
  const std::string& kernel = config.model.attn_impl;
  const bool is_forced = kernel == "cudnn" || kernel.starts_with("flash_att");
  if (kernel == "eager") {
    contradiction(config, problems, "attn_impl", "not available: GPU ranks have fused kernels only",
                  "Use auto, cudnn or flash_attn");
  } else if (is_forced && config.command == Command::kInfer) {
    contradiction(config, problems, "attn_impl",
                  "not available for infer, whose kernels follow from the lengths", "Leave it out");
  } else if (is_forced && dtype == base::Dtype::kFloat32) {
    contradiction(config, problems, "attn_impl",
                  "has no float32 kernel, which is what the ranks compute with",
                  "Use auto, or --torch_dtype bfloat16");
  } else if (kernel == "cudnn" && config.output.deterministic) {
    contradiction(config, problems, "attn_impl",
                  "adds gradients in any order, and --deterministic true is given",
                  "Use auto or flash_attn");
  }
  if (config.model.use_flash_attn == false) {
    contradiction(config, problems, "use_flash_attn", "GPU ranks have fused kernels only",
                  "Leave it out");
  }
  if (dtype == base::Dtype::kFloat16) {
    problems.push_back({.where = "--torch_dtype",
                        .what = "float16 is not available yet on GPUs",
                        .got = "float16",
                        .expected = "bfloat16 or float32"});
  }
}

}  // namespace

bool is_given(const Config& config, const std::string& option) {
  return config.given.count(option) != 0;
}

bool describes_training(Command command) {
  return runs_on_ranks(command) || command == Command::kPlan;
}

void check_option_rules(const Config& config, Problems& problems) {
  check_required(config, problems);
  check_tokenize(config, problems);
  check_export(config, problems);
  check_infer(config, problems);
  check_train_type(config, problems);
  check_data(config, problems);
  check_evaluation(config, problems);
  check_schedule(config, problems);
  check_report(config, problems);
  check_activations(config, problems);
  check_sharding(config, problems);
  check_attention(config, problems);
  check_bench(config, problems);
}

void check_device_rules(const Config& config, base::Dtype model_dtype, Problems& problems) {
  const bool planned_elsewhere =
      config.command == Command::kPlan &&
      (!config.plan.plan_device.empty() || config.memory.gpu_memory_limit_bytes.has_value());
  const base::Dtype dtype = config.model.torch_dtype.value_or(model_dtype);
  const bool has_device = computes(config.command) || config.command == Command::kPlan;
  if (!has_device) {
    return;
  }
  if (planned_elsewhere || !config.on_cpu()) {
    check_missing_on_gpu(config, dtype, problems);
    return;
  }
  check_kernel_on_cpu(config, problems);
  if (asks_for_offload(config)) {
    contradiction(config, problems, "activation_policy",
                  "offload moves activations from a GPU to the host, and the ranks are CPU ranks",
                  "Leave out the offload");
  }
  if (dtype == base::Dtype::kFloat16) {
    const bool given = config.model.torch_dtype.has_value();
    problems.push_back({.where = "--torch_dtype",
                        .what = given
                                    ? "float16 computes on GPUs only"
                                    : "the model is stored in float16, which computes on GPUs only",
                        .got = given ? "float16" : "",
                        .expected = "float32 or bfloat16 on CPU ranks"});
  }
}

}  // namespace longhaul::config
