// How much memory kernels are given to work in, known to those who start them and to those who plan it.
#pragma once

#include <cstdint>

namespace longhaul::config {

/// Most bytes of a masked copy of an adapter's input under LoRA dropout; one of at least a row. What kernels take that mask
/// without a copy lies below this.
constexpr std::int64_t kMaskedBytes = std::int64_t{128} << 20;

/// Most LoRA columns of all layers that share an input for such kernels.
constexpr std::int64_t kMostMaskedRank = 64;

/// FlashAttention-2's backward pass works in memory for so many rows more than each document has.
constexpr std::int64_t kFlashPadding = 128;

/// Most rows, padding included, of a call of FlashAttention-2 on documents of a row of `tokens`.
constexpr std::int64_t most_flash_rows(std::int64_t tokens) {
  return tokens + tokens / 8 + kFlashPadding;
}

}  // namespace longhaul::config
