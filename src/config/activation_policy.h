// The value of --activation_policy: one preset for all layers, or a mix such as
// `12xA,16xC+offload`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/shapes.h"

namespace longhaul::config {

/// One part of the value: `count` layers (0: all that are left) with one policy.
struct PolicyPart {
  std::int64_t count = 0;
  LayerPolicy policy{};
  bool operator==(const PolicyPart&) const = default;
};

/// Parts of the value in layer order, empty for `auto`; nothing when the text is not a policy.
std::optional<std::vector<PolicyPart>> parse_activation_policy(std::string_view text);

/// One policy per layer, empty for `auto`. UserError when the text is not a policy or its counts do
/// not add up to `num_layers`.
std::vector<LayerPolicy> activation_policy_of_layers(std::string_view text,
                                                     std::int64_t num_layers);

}  // namespace longhaul::config
