// Launches that work on several parts of unlike sizes: which of them a block belongs to.
#pragma once

#include <cstdint>

namespace longhaul::kernels::cuda {

/// The last part that begins at or before this block. `first_block` ascends from 0; parts that are
/// absent hold a number that no block has.
template <int kParts>
__device__ int part_of_block(const std::uint32_t (&first_block)[kParts]) {
  static_assert(kParts > 0 && (kParts & (kParts - 1)) == 0, "halves are whole");
  int index = 0;
#pragma unroll
  for (int step = kParts / 2; step > 0; step /= 2) {
    index += first_block[index + step] <= blockIdx.x ? step : 0;
  }
  return index;
}

}  // namespace longhaul::kernels::cuda
