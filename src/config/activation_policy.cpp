#include "config/activation_policy.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "config/option_value.h"

namespace longhaul::config {
namespace {

struct NamedPolicy {
  std::string_view name;
  LayerPolicy policy;
};

constexpr std::array<NamedPolicy, 8> kPolicies = {{
    {"A", {ActivationPreset::kA, false}},
    {"B", {ActivationPreset::kB, false}},
    {"C", {ActivationPreset::kC, false}},
    {"D", {ActivationPreset::kD, false}},
    {"D2", {ActivationPreset::kD2, false}},
    {"keep", {ActivationPreset::kA, false}},
    {"checkpoint", {ActivationPreset::kD, false}},
    {"offload", {ActivationPreset::kD, true}},
}};

std::optional<LayerPolicy> parse_one(std::string_view text) {
  constexpr std::string_view kOffload = "+offload";
  const bool offload = text.ends_with(kOffload);
  if (offload) {
    text.remove_suffix(kOffload.size());
  }
  for (const NamedPolicy& named : kPolicies) {
    if (named.name == text && !(offload && named.policy.offload)) {
      return LayerPolicy{named.policy.preset, offload || named.policy.offload};
    }
  }
  return std::nullopt;
}

std::optional<PolicyPart> parse_part(std::string_view text) {
  const std::size_t cross = text.find('x');
  const auto count =
      cross == std::string_view::npos ? std::nullopt : parse_integer(text.substr(0, cross));
  if (!count || *count < 1 || *count > 4096) {
    return std::nullopt;
  }
  const auto policy = parse_one(text.substr(cross + 1));
  return policy ? std::optional(PolicyPart{*count, *policy}) : std::nullopt;
}

}  // namespace

std::optional<std::vector<PolicyPart>> parse_activation_policy(std::string_view text) {
  if (text == "auto") {
    return std::vector<PolicyPart>{};
  }
  if (const auto policy = parse_one(text)) {
    return std::vector<PolicyPart>{{0, *policy}};
  }
  std::vector<PolicyPart> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    const auto part = parse_part(text.substr(0, comma));
    if (!part) {
      return std::nullopt;
    }
    parts.push_back(*part);
    if (comma == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(comma + 1);
  }
}

std::vector<LayerPolicy> activation_policy_of_layers(std::string_view text,
                                                     std::int64_t num_layers) {
  const auto parts = parse_activation_policy(text);
  if (!parts) {
    throw base::UserError({.where = "--activation_policy",
                           .what = "not a policy",
                           .got = std::string(text),
                           .expected = "auto, keep, checkpoint, offload, A, B, C, D or D2, with or "
                                       "without +offload, or a mix such as 12xA,16xC+offload"});
  }
  std::vector<LayerPolicy> layers;
  for (const PolicyPart& part : *parts) {
    const std::int64_t count = part.count == 0 ? num_layers : part.count;
    layers.insert(layers.end(), static_cast<std::size_t>(count), part.policy);
  }
  if (!layers.empty() && static_cast<std::int64_t>(layers.size()) != num_layers) {
    throw base::UserError({.where = "--activation_policy",
                           .what = "the counts do not add up to the model's layers",
                           .got = fmt::format("{} ({} layers)", text, layers.size()),
                           .expected = fmt::format("{} layers", num_layers)});
  }
  return layers;
}

}  // namespace longhaul::config
