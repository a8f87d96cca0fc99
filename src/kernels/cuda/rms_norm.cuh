// What both directions of RMSNorm share: which team works on a group, by its width. A thread of a
// team holds the vectors lane, lane + threads, … of the group; what the shape cannot hold (the
// largest only) is read from memory again.
#pragma once

#include "kernels/cuda/fast_divide.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/team.cuh"

namespace longhaul::kernels::cuda {

/// Calls `run` with the shape for groups of `vectors` vectors.
template <typename Run>
void dispatch_team(std::int64_t vectors, const Run& run) {
  if (vectors <= TeamShape<8, 2>::kCapacity) {
    run(TeamShape<8, 2>{});
  } else if (vectors <= TeamShape<32, 2>::kCapacity) {
    run(TeamShape<32, 2>{});
  } else if (vectors <= TeamShape<128, 2>::kCapacity) {
    run(TeamShape<128, 2>{});
  } else if (vectors <= TeamShape<256, 2>::kCapacity) {
    run(TeamShape<256, 2>{});
  } else if (vectors <= TeamShape<256, 4>::kCapacity) {
    run(TeamShape<256, 4>{});
  } else {
    run(TeamShape<512, 4>{});
  }
}

/// Where a thread works. A team beyond the last group takes part in the barriers with no vectors,
/// and its pointers are those of the last group.
struct TeamPlace {
  std::int64_t row;
  std::uint32_t group;
  int lane;
  int vectors;
};

/// The place of this thread when the block's first team works on group number `first` of `total`.
template <typename Shape, int kVector>
__device__ TeamPlace find_place(std::uint32_t first, std::uint32_t total, FastDivide groups,
                                std::int64_t first_row, std::int64_t width) {
  const std::uint32_t wanted = first + threadIdx.x / Shape::kThreads;
  const std::uint32_t index = wanted < total ? wanted : total - 1;
  const std::uint32_t row = groups.quotient(index);
  return {first_row + row, index - row * groups.divisor(),
          static_cast<int>(threadIdx.x % Shape::kThreads),
          wanted < total ? static_cast<int>((width + kVector - 1) / kVector) : 0};
}

/// Groups consist of whole vectors on 16-byte borders.
template <typename T>
bool groups_whole(std::initializer_list<Operand> operands, std::int64_t rows, std::int64_t width) {
  return width % kPack<T> == 0 && rows_aligned(operands, rows, sizeof(T));
}

/// What index arithmetic of the norm kernels relies on.
inline void check_norm_shape(std::int64_t groups, std::int64_t width) {
  LONGHAUL_ASSERT(groups >= 1 && width >= 1 && groups <= kMaxItems && width <= kMaxItems,
                  "a norm has groups and columns, fewer than 2^30");
}

}  // namespace longhaul::kernels::cuda
