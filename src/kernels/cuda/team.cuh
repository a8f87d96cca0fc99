// Sums over teams of threads that share a row (part of a warp, or a whole block), each in a fixed
// order and with the same bits in every thread of the team.
#pragma once

#include <cuda_runtime.h>

namespace longhaul::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// `kTeamThreads` threads hold up to `kTeamVectors` vectors each; small teams share a block.
template <int kTeamThreads, int kTeamVectors>
struct TeamShape {
  static constexpr int kThreads = kTeamThreads;
  static constexpr int kVectors = kTeamVectors;
  static constexpr int kCapacity = kThreads * kVectors;
  static constexpr int kBlock = kThreads > 32 ? kThreads : 128;
  static constexpr int kTeams = kBlock / kThreads;
  static constexpr bool kWholeBlock = kThreads > 32;
  static_assert(kWholeBlock ? kTeams == 1 : 32 % kThreads == 0);
};

/// Sums one value of each thread of the team. All threads of the block call it equally often.
template <typename Shape>
class TeamSum {
 public:
  static constexpr int kWarps = Shape::kWholeBlock ? Shape::kThreads / 32 : 1;
  /// Two turns of partial sums: with one barrier a call, a thread may still read the previous turn
  /// while another writes the next.
  struct Storage {
    float warp_sums[2][kWarps];
  };

  __device__ explicit TeamSum(Storage& storage) : storage_(storage) {}

  __device__ float operator()(float value) {
    constexpr int kLanes = Shape::kWholeBlock ? 32 : Shape::kThreads;
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(kAllLanes, value, distance);
    }
    if constexpr (Shape::kWholeBlock) {
      float* sums = storage_.warp_sums[turn_];
      turn_ ^= 1;
      if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = value;
      }
      __syncthreads();
      value = 0.0F;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) {
        value += sums[i];
      }
    }
    return value;
  }

 private:
  Storage& storage_;
  int turn_ = 0;
};

/// Combines one value of each thread of a block of `kThreads`. Once in a kernel for each type and
/// operation: the shared memory is not cleared for a second time.
template <int kThreads, typename Value, typename Combine>
__device__ Value block_combine(Value value, Combine combine) {
  __shared__ Value warp_values[kThreads / 32];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  if (threadIdx.x % 32 == 0) {
    warp_values[threadIdx.x / 32] = value;
  }
  __syncthreads();
  value = warp_values[0];
#pragma unroll
  for (int i = 1; i < kThreads / 32; ++i) {
    value = combine(value, warp_values[i]);
  }
  return value;
}

/// Sum over the block, the same in every thread.
template <int kThreads>
__device__ double block_sum(double value) {
  return block_combine<kThreads>(value, [](double a, double b) { return a + b; });
}

/// Largest over the block, the same in every thread; NaN is passed over.
template <int kThreads>
__device__ float block_max(float value) {
  return block_combine<kThreads>(value, [](float a, float b) { return fmaxf(a, b); });
}

}  // namespace longhaul::kernels::cuda
