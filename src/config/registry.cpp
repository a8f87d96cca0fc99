// The parameter registry: base parameters, which of them train, then the adapter's. Freezing
// follows ms-swift: everything trains, ratio / prefixes / expression freeze, then the trainable
// prefixes / expression thaw.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "config/module_names.h"
#include "config/name_regex.h"
#include "config/shapes.h"

namespace longhaul::config {
namespace {

using Matcher = std::function<bool(const std::string&)>;

/// Sets `trainable` on every parameter that `matches`; the tied head is reached under the
/// embedding's name only.
std::optional<base::Problem> mark_matching(std::vector<ParamSpec>& params, const Matcher& matches,
                                           bool trainable, const std::string& option,
                                           const std::string& text) {
  bool found = false;
  bool found_tied = false;
  for (ParamSpec& param : params) {
    if (matches(param.name)) {
      found = found || !param.tied_to;
      found_tied = found_tied || param.tied_to.has_value();
      if (!param.tied_to) {
        param.trainable = trainable;
      }
    }
  }
  if (found) {
    return std::nullopt;
  }
  base::Problem problem{.where = option, .what = "matches no parameter of this model", .got = text};
  problem.hint = found_tied
                     ? "lm_head.weight is tied to the embedding here: name model.embed_tokens"
                     : "Parameter names look like model.layers.0.self_attn.q_proj.weight";
  return problem;
}

/// Freezes the first parameters whose sizes together do not exceed `ratio` of all.
void freeze_share(std::vector<ParamSpec>& params, double ratio) {
  std::int64_t total = 0;
  for (const ParamSpec& param : params) {
    total += param.tied_to ? 0 : param.num_elements();
  }
  const auto limit = static_cast<std::int64_t>(static_cast<double>(total) * ratio);
  std::int64_t sum = 0;
  for (ParamSpec& param : params) {
    sum += param.tied_to ? 0 : param.num_elements();
    if (sum > limit) {
      return;
    }
    param.trainable = false;
  }
}

/// A tied head trains exactly when the embedding does.
void follow_ties(std::vector<ParamSpec>& params) {
  for (ParamSpec& param : params) {
    if (param.tied_to) {
      const auto owner = std::find_if(params.begin(), params.end(), [&](const ParamSpec& other) {
        return other.name == *param.tied_to;
      });
      param.trainable = owner != params.end() && owner->trainable;
    }
  }
}

void mark_full(std::vector<ParamSpec>& params, const TuningSpec& tuning) {
  for (ParamSpec& param : params) {
    param.trainable = true;
  }
  if (tuning.freeze_ratio > 0) {
    freeze_share(params, tuning.freeze_ratio);
  }
  std::vector<base::Problem> problems;
  const auto apply = [&](const Matcher& matches, bool trainable, const std::string& option,
                         const std::string& text) {
    if (auto problem = mark_matching(params, matches, trainable, option, text)) {
      problems.push_back(std::move(*problem));
    }
  };
  const auto apply_prefixes = [&](const std::vector<std::string>& prefixes, bool trainable,
                                  const std::string& option) {
    for (const std::string& prefix : prefixes) {
      apply([&](const std::string& name) { return name.starts_with(prefix); }, trainable, option,
            prefix);
    }
  };
  const auto apply_regex = [&](const std::string& pattern, bool trainable,
                               const std::string& option) {
    if (!pattern.empty()) {
      const NameRegex regex(pattern, option);
      apply([&](const std::string& name) { return regex.search(name); }, trainable, option,
            pattern);
    }
  };
  apply_prefixes(tuning.freeze_prefixes, false, "--freeze_parameters");
  apply_regex(tuning.freeze_regex, false, "--freeze_parameters_regex");
  apply_prefixes(tuning.trainable_prefixes, true, "--trainable_parameters");
  apply_regex(tuning.trainable_regex, true, "--trainable_parameters_regex");
  if (!problems.empty()) {
    throw base::UserError(std::move(problems));
  }
  follow_ties(params);
  const bool any = std::any_of(params.begin(), params.end(),
                               [](const ParamSpec& param) { return param.trainable; });
  if (!any) {
    throw base::UserError({.where = "--freeze_parameters",
                           .what = "no parameter is left to train",
                           .hint = "Freeze less, or thaw some with --trainable_parameters"});
  }
}

/// Trained copies of whole modules. A copy of one end of tied embeddings no longer shares with the
/// other, as in PEFT, so the tie is dropped.
void mark_saved_modules(std::vector<ParamSpec>& params, const ModelConfig& model,
                        const LoraSpec& lora) {
  const std::vector<std::string> saved = saved_modules(model, lora.modules_to_save);
  bool drop_tie = false;
  for (ParamSpec& param : params) {
    const bool copied = std::any_of(saved.begin(), saved.end(), [&](const std::string& module) {
      return is_inside_module(param.name, module);
    });
    if (copied) {
      param.trainable = true;
      param.in_adapter = true;
      drop_tie = drop_tie || param.kind == ParamKind::kEmbedding || param.kind == ParamKind::kHead;
    }
  }
  if (drop_tie) {
    params.back().tied_to.reset();
  }
  for (const std::string& target : lora.target_modules) {
    for (const std::string& module : saved) {
      if (is_inside_module(target, module)) {
        throw base::UserError(
            {.where = "--modules_to_save",
             .what = fmt::format("{} is a LoRA target and part of the saved {}", target, module),
             .hint = "Remove it from one of the two"});
      }
    }
  }
}

ParamSpec adapter_param(const ParamSpec& base, std::string_view part, ParamKind kind,
                        std::vector<std::int64_t> shape) {
  ParamSpec param;
  const std::string_view module =
      std::string_view(base.name).substr(0, base.name.size() - std::string_view("weight").size());
  param.name = fmt::format("{}{}.weight", module, part);
  param.shape = std::move(shape);
  param.kind = kind;
  param.layer = base.layer;
  param.trainable = true;
  param.decay = true;
  param.in_adapter = true;
  return param;
}

void append_adapter(std::vector<ParamSpec>& params, const LoraSpec& lora) {
  std::vector<ParamSpec> adapter;
  std::size_t matched = 0;
  for (const ParamSpec& param : params) {
    if (param.kind != ParamKind::kLinearWeight) {
      continue;
    }
    const std::string module = param.name.substr(0, param.name.size() - 7);
    if (std::find(lora.target_modules.begin(), lora.target_modules.end(), module) ==
        lora.target_modules.end()) {
      continue;
    }
    ++matched;
    adapter.push_back(
        adapter_param(param, "lora_A", ParamKind::kLoraA, {lora.rank, param.shape[1]}));
    adapter.push_back(
        adapter_param(param, "lora_B", ParamKind::kLoraB, {param.shape[0], lora.rank}));
  }
  LONGHAUL_ASSERT(matched == lora.target_modules.size(),
                  "LoRA targets are distinct paths of linear layers");
  params.insert(params.end(), adapter.begin(), adapter.end());
}

}  // namespace

std::vector<ParamSpec> build_registry(const ModelConfig& model, const TuningSpec& tuning) {
  std::vector<ParamSpec> params = base_parameters(model);
  if (tuning.full) {
    mark_full(params, tuning);
    return params;
  }
  if (tuning.lora) {
    mark_saved_modules(params, model, *tuning.lora);
    append_adapter(params, *tuning.lora);
  }
  return params;
}

}  // namespace longhaul::config
