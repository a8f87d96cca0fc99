#include "config/bench_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/activation_policy.h"
#include "config/named_models.h"
#include "config/options.h"
#include "config/rules.h"
#include "config/validate.h"

namespace longhaul::config {
namespace {

using Problems = std::vector<base::Problem>;

constexpr std::array<std::string_view, 4> kParts = {"train", "ladder", "attention", "exchange"};

void check_part(const Config& config, Problems& problems) {
  const std::string& part = config.bench.part;
  if (std::find(kParts.begin(), kParts.end(), part) != kParts.end()) {
    return;
  }
  const auto nearest = nearest_name(part, kParts);
  problems.push_back({.where = "longhaul bench",
                      .what = part.empty() ? "what is to be measured is missing" : "unknown part",
                      .got = part,
                      .expected = "train, ladder, attention or exchange",
                      .hint = part.empty() || !nearest
                                  ? ""
                                  : fmt::format("Did you mean longhaul bench {}?", *nearest)});
}

void check_shape(const Config& config, Problems& problems) {
  const bool has_model = is_given(config, "model");
  const std::string& shape = config.bench.shape;
  if (shape.empty() != has_model) {
    problems.push_back({.where = "--shape",
                        .what = has_model ? "--model is given, too" : "missing, and so is --model",
                        .got = shape,
                        .expected = has_model ? "" : "the name of a shape, such as qwen2.5-7b",
                        .hint = has_model ? "Leave out one of the two" : ""});
  } else if (!has_model && !find_named_model(shape)) {
    const auto nearest = nearest_name(shape, named_models());
    problems.push_back({.where = "--shape",
                        .what = "unknown shape",
                        .got = shape,
                        .expected = fmt::format("{}", fmt::join(named_models(), ", ")),
                        .hint = nearest ? fmt::format("Did you mean {}?", *nearest) : ""});
  }
}

/// An option that the part does not look at would be ignored in silence.
void check_options_of_part(const Config& config, Problems& problems) {
  const std::string& part = config.bench.part;
  const auto refuse = [&](const char* option, std::string_view only_for) {
    if (is_given(config, option)) {
      problems.push_back({.where = std::string("--") + option,
                          .what = fmt::format("has no meaning for longhaul bench {}", part),
                          .got = config.given.at(option),
                          .hint = fmt::format("It belongs to longhaul bench {}", only_for)});
    }
  };
  if (part == "attention" || part == "exchange") {
    for (const char* option :
         {"activation_policy", "policies", "train_type", "lora_rank", "lora_dropout",
          "optimizer_state_dtype", "gpu_memory_limit", "host_memory_limit", "fsdp", "deepspeed"}) {
      refuse(option, "train");
    }
  }
  if (part == "ladder") {
    for (const char* option : {"activation_policy", "policies"}) {
      refuse(option, "train; the ladder's steps have their own");
    }
  }
  if (part == "exchange") {
    refuse("deterministic", "train, ladder and attention");
  }
  if (part == "attention" || part == "exchange") {
    refuse("attn_impl", "train and ladder; attention measures every kernel");
  }
  if (part != "attention") {
    refuse("sequence_parallel_size", "attention; here all ranks share a row");
  }
  if (part != "train") {
    refuse("attention_rehearsal", "train");
  }
  if (part == "exchange") {
    refuse("packing_mean", "train, ladder and attention");
  }
  if (is_given(config, "policies") && is_given(config, "activation_policy")) {
    problems.push_back({.where = "--policies",
                        .what = "--activation_policy is given, too",
                        .got = config.given.at("policies"),
                        .hint = "Leave out one of the two"});
  }
}

/// Throws what activation_policy_of_layers finds at fault under the option that was given.
void check_policies(const Config& config, const ModelConfig& model, Problems& problems) {
  for (const std::string& policy : bench_policies(config)) {
    if (config.bench.policies.empty() && !parse_activation_policy(policy)) {
      continue;  // already a fault of --activation_policy
    }
    try {
      activation_policy_of_layers(policy, model.num_layers);
    } catch (const base::UserError& error) {
      base::Problem problem = error.problems().front();
      problem.where = config.bench.policies.empty() ? problem.where : "--policies";
      problems.push_back(std::move(problem));
    }
    if (config.on_cpu() && policy.find("offload") != std::string::npos &&
        !config.bench.policies.empty()) {
      problems.push_back({.where = "--policies",
                          .what = "offload moves activations from a GPU to the host, and the ranks "
                                  "are CPU ranks",
                          .got = policy});
    }
  }
}

}  // namespace

std::span<const std::string_view> bench_parts() { return kParts; }

void check_bench(const Config& config, Problems& problems) {
  if (config.command != Command::kBench) {
    return;
  }
  check_part(config, problems);
  check_shape(config, problems);
  check_options_of_part(config, problems);
  if (config.bench.part == "exchange" && config.launch.ranks == 1) {
    problems.push_back({.where = "longhaul bench exchange",
                        .what = "one rank has nobody to exchange with",
                        .hint = "Start two or more with NPROC_PER_NODE=2"});
  }
  if (config.bench.part == "attention" && config.launch.ranks > 1) {
    problems.push_back({.where = "longhaul bench attention",
                        .what = "measures one rank on one device",
                        .got = fmt::format("{} ranks", config.launch.ranks),
                        .hint =
                            "Leave out NPROC_PER_NODE; --sequence_parallel_size takes the heads "
                            "that one of several ranks has"});
  }
}

void decide_bench(Config& config, const ModelConfig& model, Problems& problems) {
  config.row_length = *std::max_element(config.bench.lengths.begin(), config.bench.lengths.end());
  config.max_length = config.row_length;
  const bool is_attention = config.bench.part == "attention";
  const std::int64_t share =
      is_attention ? config.parallel.sequence_parallel_size.value_or(1) : config.launch.ranks;
  if (share > model.num_heads) {
    problems.push_back(
        {.where = is_attention ? "--sequence_parallel_size" : "NPROC_PER_NODE",
         .what = fmt::format("more ranks than the model's {} query heads", model.num_heads),
         .got = fmt::format("{}", share),
         .expected = fmt::format("at most {}", model.num_heads)});
    return;
  }
  config.mesh = {.dp = 1, .sp = share};
  if (config.bench.part == "train" || config.bench.part == "ladder") {
    check_policies(config, model, problems);
    try {
      build_registry(model, tuning_spec(config, model));
    } catch (const base::UserError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
}

std::vector<std::string> bench_policies(const Config& config) {
  return config.bench.policies.empty() ? std::vector{config.memory.activation_policy}
                                       : config.bench.policies;
}

BenchSteps bench_steps(const BenchOptions& options, std::int64_t tokens) {
  constexpr std::int64_t k64K = 65536;
  constexpr std::int64_t k128K = 131072;
  BenchSteps steps = tokens <= k64K    ? BenchSteps{.warm_up = 2, .measured = 5}
                     : tokens <= k128K ? BenchSteps{.warm_up = 1, .measured = 2}
                                       : BenchSteps{.warm_up = 1, .measured = 1};
  steps.measured = options.steps.value_or(steps.measured);
  return steps;
}

}  // namespace longhaul::config
