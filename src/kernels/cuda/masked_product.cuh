// What the kernels of LoRA's narrow products under dropout share. The wide matrix goes by once, 16 bytes a thread, is
// masked in registers, and meets the tensor cores as it lies there: the order of k inside a product is free, and where a
// product wants neighbouring rows of a column, pairs of rows are interleaved. No masked copy, no shared memory on the way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/mix.h"

namespace longhaul::kernels::cuda {

/// Of a block of all of them.
inline constexpr int kMaskedThreads = 256;
inline constexpr int kMaskedWarps = kMaskedThreads / 32;
inline constexpr int kStrip =
    static_cast<int>(kMaskedStrip);  // columns of a block that walks down its rows

/// The mask of a call.
struct Mask {
  const std::uint64_t* row_keys;
  std::uint64_t seed_mix;
  std::int64_t first_pair;
  std::uint32_t limit;  // of the upper 24 bits: kept from here on
  float factor;         // 0 when nothing is kept

  explicit Mask(const MaskedProduct& a)
      : row_keys(a.row_keys),
        seed_mix(mix(a.seed_key)),
        first_pair(a.first_column / 2),
        limit(static_cast<std::uint32_t>(
            std::min(std::uint64_t{first_kept(a.probability)} << 8, std::uint64_t{UINT32_MAX}))),
        factor(a.probability < 1.0F ? 1.0F / (1.0F - a.probability) : 0.0F) {}

  /// What the row has in common with the seed: the address of its columns.
  __device__ std::uint64_t row_mix(std::int64_t row) const {
    return mix(__ldg(reinterpret_cast<const unsigned long long*>(row_keys) + row) ^ seed_mix);
  }
  /// Ones where the two columns from the even `column` on are kept.
  __device__ std::uint32_t kept(std::uint64_t row_mix, std::int64_t column) const {
    const std::uint64_t word = pair_word(row_mix, first_pair + column / 2);
    return (static_cast<std::uint32_t>(word) >= limit ? 0x0000FFFFU : 0U) |
           (static_cast<std::uint32_t>(word >> 32) >= limit ? 0xFFFF0000U : 0U);
  }
  /// Eight columns from `column` on.
  __device__ void drop(Vector<BFloat16, 8>& x, std::uint64_t row_mix, std::int64_t column) const {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      x.words[pair] &= kept(row_mix, column + 2 * pair);
    }
  }
};

/// A thread's place: lane 4·g + t of a warp.
struct Lane {
  int warp = static_cast<int>(threadIdx.x) / 32;
  int g = static_cast<int>(threadIdx.x) % 32 / 4;
  int t = static_cast<int>(threadIdx.x) % 4;
};

/// A matrix as the elements that it has.
__device__ inline const BFloat16* bf16(const void* data) {
  return static_cast<const BFloat16*>(data);
}

/// Calls `run` with the rank's number of tiles of 8 as a constant.
template <typename Run>
void dispatch_tiles(const MaskedProduct& a, const Run& run) {
  LONGHAUL_ASSERT(takes_masked_product(a), "a shape that masked products take");
  switch (a.rank / kMaskedTile) {
    case 1:
      return run(std::integral_constant<int, 1>());
    case 2:
      return run(std::integral_constant<int, 2>());
    case 3:
      return run(std::integral_constant<int, 3>());
    case 4:
      return run(std::integral_constant<int, 4>());
    case 5:
      return run(std::integral_constant<int, 5>());
    case 6:
      return run(std::integral_constant<int, 6>());
    case 7:
      return run(std::integral_constant<int, 7>());
    default:
      static_assert(kMostMaskedRank == 8 * kMaskedTile);
      return run(std::integral_constant<int, 8>());
  }
}

/// Blocks side by side over the columns.
inline unsigned strips(const MaskedProduct& a) { return static_cast<unsigned>(a.width / kStrip); }

}  // namespace longhaul::kernels::cuda
