// Sums of one value per rank, always taken in rank order so that every transport and every rank
// gets equal bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

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

}  // namespace longhaul::dist
