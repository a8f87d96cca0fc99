// A vector of rotary pairs (i, i + head_dim/2) of one head, turned in the same way by every kernel
// that rotates, so that their bits are equal.
#pragma once

#include "kernels/cuda/element.cuh"

namespace longhaul::kernels::cuda {

template <typename T, int N>
struct RotaryPairs {
  Vector<T, N> low;
  Vector<T, N> high;
  float cosine[N];
  float sine[N];
};

/// Pairs from `low` and `low + half` on, with the angles from `cosine` and `sine` on; kMemory is what
/// holds of the pairs. With N > 1 all four lie on 16-byte borders.
template <int N, Memory kMemory, typename T>
__device__ RotaryPairs<T, N> load_pairs(const T* low, std::int64_t half, const float* cosine,
                                        const float* sine) {
  RotaryPairs<T, N> pairs;
  pairs.low = load_vector<N, kMemory>(low);
  pairs.high = load_vector<N, kMemory>(low + half);
  load_floats<(N > 1), Memory::kConstant>(cosine, N, pairs.cosine);
  load_floats<(N > 1), Memory::kConstant>(sine, N, pairs.sine);
  return pairs;
}

/// Turns the pairs, back when `inverse`, and stores them at `low` and `low + half`.
template <typename T, int N>
__device__ void store_turned(T* low, std::int64_t half, const RotaryPairs<T, N>& in, bool inverse) {
  float turned_low[N];
  float turned_high[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float sine = inverse ? -in.sine[i] : in.sine[i];
    turned_low[i] = fmaf(in.low[i], in.cosine[i], -(in.high[i] * sine));
    turned_high[i] = fmaf(in.high[i], in.cosine[i], in.low[i] * sine);
  }
  store_vector(low, to_vector<T>(turned_low));
  store_vector(low + half, to_vector<T>(turned_high));
}

}  // namespace longhaul::kernels::cuda
