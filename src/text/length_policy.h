// What becomes of a sample longer than max_length.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "text/tokenized_sample.h"

namespace longhaul::text {

/// The sample itself when it fits (or max_length ≤ 0: no limit). Otherwise delete: nothing; left:
/// its last max_length tokens; right: its first; split: consecutive parts. Every result has
/// labels[0] = kNoLabel.
std::vector<TokenizedSample> apply_length_policy(TokenizedSample sample, std::int64_t max_length,
                                                 config::TruncationStrategy strategy);

}  // namespace longhaul::text
