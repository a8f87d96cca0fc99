// What every transport does in the same way: sums of one value per rank, always taken in rank order
// so that every transport and every rank gets equal bits, and a rank's block for itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace longhaul::dist {

/// out = block; the first term of a sum.
template <typename T>
void start_sum(std::span<T> out, std::span<const T> block) {
  std::copy(block.begin(), block.end(), out.begin());
}

/// out += block, element by element.
template <typename T>
void add_to_sum(std::span<T> out, std::span<const T> block) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] += block[i];
  }
}

/// out = max(out, block); a NaN of either side stays, so that no rank hides it.
template <typename T>
void take_maximum(std::span<T> out, std::span<const T> block) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool is_nan = block[i] != block[i];
    out[i] = is_nan || block[i] > out[i] ? block[i] : out[i];
  }
}

/// Bytes of a rank's block for itself that all_to_all copies; 0 when it is left alone.
inline std::int64_t own_block_bytes(std::int64_t send_bytes, std::int64_t receive_bytes) {
  LONGHAUL_ASSERT(send_bytes == receive_bytes || send_bytes == 0 || receive_bytes == 0,
                  "a rank's block for itself has one size");
  return std::min(send_bytes, receive_bytes);
}

}  // namespace longhaul::dist
