#include "plan/memory_plan.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "config/activation_policy.h"
#include "metrics/progress.h"
#include "plan/memory_model.h"
#include "plan/policy_choice.h"

namespace longhaul::plan {

using config::LayerPolicy;

RankBytes rank_bytes(const MemoryRequest& request, std::span<const LayerPolicy> policies,
                     const LayerForm& form) {
  return MemoryModel(request).bytes(policies, form);
}

std::string policy_text(std::span<const LayerPolicy> policies) {
  constexpr std::array kNames = {"A", "B", "C", "D", "D2"};
  std::string text;
  for (std::size_t begin = 0; begin < policies.size();) {
    std::size_t end = begin;
    while (end < policies.size() && policies[end] == policies[begin]) {
      ++end;
    }
    text += fmt::format("{}{}x{}{}", text.empty() ? "" : ",", end - begin,
                        kNames[static_cast<std::size_t>(policies[begin].preset)],
                        policies[begin].offload ? "+offload" : "");
    begin = end;
  }
  return text;
}

std::string form_text(const LayerForm& form) {
  std::string text;
  if (form.attention_groups > 1) {
    text += fmt::format("attention in {} head groups", form.attention_groups);
  }
  if (form.mlp_tile_rows > 0) {
    text += fmt::format("{}MLP in tiles of {} rows", text.empty() ? "" : ", ",
                        metrics::with_thousands(form.mlp_tile_rows));
  }
  if (form.reruns_u) {
    text += fmt::format("{}LoRA's x·A made again", text.empty() ? "" : ", ");
  }
  return text;
}

std::string choice_text(const MemoryPlan& plan) {
  const std::string form = form_text(plan.form);
  return policy_text(plan.policies) + (form.empty() ? "" : ", ") + form;
}

AttentionKind attention_kind(const config::Config& config) {
  if (config.output.deterministic) {
    return AttentionKind::kDeterministicFlash;
  }
  return config.model.attn_impl == "flash_attn" ? AttentionKind::kFlash : AttentionKind::kCudnn;
}

MemoryPlan make_memory_plan(const MemoryRequest& request) {
  auto policies =
      config::activation_policy_of_layers(request.activation_policy, request.model->num_layers);
  return policies.empty() ? choose_policies(request)
                          : MemoryModel(request).plan(std::move(policies));
}

}  // namespace longhaul::plan
