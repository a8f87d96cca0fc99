// Which linear layers get a LoRA, with PEFT's meaning of target_modules: `all-linear`, names that
// match as a whole path or as its ending, or one regular expression that matches whole paths.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "config/module_names.h"
#include "config/name_regex.h"
#include "config/shapes.h"

namespace longhaul::config {
namespace {

constexpr std::string_view kOption = "--target_modules";
constexpr std::string_view kAllLinear = "all-linear";

bool matches_name(std::string_view module, std::string_view name) {
  return module == name || (module.size() > name.size() && module.ends_with(name) &&
                            module[module.size() - name.size() - 1] == '.');
}

base::Problem not_linear(const std::string& target, const std::string& module) {
  base::Problem problem{.where = std::string(kOption), .what = {}, .got = target};
  if (module == kEmbeddingModule || module == kHeadModule) {
    problem.what = fmt::format("{} cannot be a LoRA target", module);
    problem.hint = "Name it in --modules_to_save to train it whole";
  } else {
    problem.what = fmt::format("matches {}, which is no linear layer", module);
    problem.expected = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj or all-linear";
  }
  return problem;
}

/// Adds what `matches` selects to `chosen`, or says why the target is not usable.
template <typename Matches>
std::optional<base::Problem> choose(const std::vector<std::string>& modules,
                                    const std::set<std::string>& linear, const std::string& target,
                                    const Matches& matches, std::set<std::string>& chosen) {
  bool found = false;
  for (const std::string& module : modules) {
    if (!matches(module)) {
      continue;
    }
    if (linear.count(module) == 0) {
      return not_linear(target, module);
    }
    chosen.insert(module);
    found = true;
  }
  if (found) {
    return std::nullopt;
  }
  return base::Problem{
      .where = std::string(kOption),
      .what = "matches no linear layer of this model",
      .got = target,
      .expected = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj or all-linear"};
}

std::set<std::string> select(const ModelConfig& model, std::span<const std::string> targets,
                             const std::vector<std::string>& linear) {
  const std::vector<std::string> modules = all_module_names(model);
  const std::set<std::string> linear_set(linear.begin(), linear.end());
  std::set<std::string> chosen;
  std::vector<base::Problem> problems;
  const auto note = [&problems](std::optional<base::Problem> problem) {
    if (problem) {
      problems.push_back(std::move(*problem));
    }
  };
  if (targets.size() == 1 && looks_like_regex(targets[0])) {
    const NameRegex regex(targets[0], std::string(kOption));
    note(choose(
        modules, linear_set, targets[0],
        [&](const std::string& module) { return regex.full_match(module); }, chosen));
  } else {
    for (const std::string& target : targets) {
      if (target == kAllLinear) {
        chosen = linear_set;
        continue;
      }
      note(choose(
          modules, linear_set, target,
          [&](const std::string& module) { return matches_name(module, target); }, chosen));
    }
  }
  if (!problems.empty()) {
    throw base::UserError(std::move(problems));
  }
  return chosen;
}

}  // namespace

std::vector<std::string> resolve_target_modules(const ModelConfig& model,
                                                std::span<const std::string> targets,
                                                std::span<const std::string> modules_to_save) {
  const std::vector<std::string> linear = linear_module_names(model);
  const std::vector<std::string> saved = saved_modules(model, modules_to_save);
  const std::set<std::string> chosen = targets.empty()
                                           ? std::set<std::string>(linear.begin(), linear.end())
                                           : select(model, targets, linear);
  std::vector<std::string> result;
  for (const std::string& module : linear) {
    const bool copied = std::any_of(saved.begin(), saved.end(), [&](const std::string& whole) {
      return is_inside_module(module, whole);
    });
    if (!copied && chosen.count(module) != 0) {
      result.push_back(module);
    }
  }
  if (result.empty()) {
    throw base::UserError({.where = std::string(kOption),
                           .what = "no linear layer is left beside --modules_to_save",
                           .hint = "Save fewer modules, or use --train_type full"});
  }
  return result;
}

}  // namespace longhaul::config
