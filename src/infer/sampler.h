// From logits to one token: the likeliest, or a draw from softmax(logits / temperature) cut to the
// likeliest tokens of total probability top_p. A draw depends on (seed, row, position) alone.
#pragma once

#include <cstdint>
#include <span>

namespace longhaul::infer {

struct SamplingOptions {
  double temperature = 0;  // 0: the likeliest token, ties to the smaller id
  double top_p = 1;
  std::uint64_t seed = 42;
};

/// The token that follows `position` earlier tokens in row `row`. UserError when logits are not
/// finite.
std::int32_t choose_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t row, std::int64_t position);

}  // namespace longhaul::infer
