// The hand-off from text to data: one conversation as token ids with targets.
#pragma once

#include <cstdint>
#include <vector>

namespace longhaul::text {

/// No target at this position.
constexpr std::int32_t kNoLabel = -100;

/// Invariant: equal lengths, labels[0] == kNoLabel; labels are not shifted (labels[i] is ids[i] or
/// kNoLabel).
struct TokenizedSample {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
};

}  // namespace longhaul::text
