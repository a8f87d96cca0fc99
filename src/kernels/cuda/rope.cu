// Rotary embedding in place. One item is a vector of pairs (i, i + head_dim/2) of one head.
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/rotary.cuh"
#include "kernels/cuda/row_map.cuh"

namespace longhaul::kernels::cuda {
namespace {

template <typename T, int N>
struct RopeBody {
  using Values = RotaryPairs<T, N>;
  Rope a;
  FastDivide per_head;  // items of a head

  __device__ T* place(std::int64_t row, std::uint32_t item) const {
    const std::uint32_t head = per_head.quotient(item);
    const std::uint32_t within = item - head * per_head.divisor();
    return static_cast<T*>(a.x) + row * a.pitch + head * a.head_dim + std::int64_t{within} * N;
  }
  __device__ Values load(std::int64_t row, std::uint32_t item) const {
    const std::int64_t half = a.head_dim / 2;
    const std::uint32_t within = item - per_head.quotient(item) * per_head.divisor();
    const std::int64_t angle = row * half + std::int64_t{within} * N;
    return load_pairs<N, Memory::kMutable>(place(row, item), half, a.cosine + angle,
                                           a.sine + angle);
  }
  __device__ void finish(std::int64_t row, std::uint32_t item, const Values& in) const {
    store_turned(place(row, item), a.head_dim / 2, in, a.inverse);
  }
};

template <typename T, int N>
void run_rope(const Rope& a, Stream stream) {
  const std::int64_t per_head = a.head_dim / 2 / N;
  if (per_head == 0) {
    return;
  }
  LONGHAUL_ASSERT(per_head <= kMaxItems, "a head has fewer than 2^30 pairs");
  const RopeBody<T, N> body{a, FastDivide(static_cast<std::uint32_t>(per_head))};
  map_rows<1>("rope", body, a.rows, a.heads * per_head, stream);
}

}  // namespace

void rope(const Rope& a, Stream stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t half = a.head_dim / 2;
    // The angles' rows are `half` fp32 values, a multiple of 16 bytes as soon as x's vectors fit.
    const bool aligned = half % kPack<T> == 0 &&
                         rows_aligned({{a.x, a.pitch}}, a.rows, sizeof(T)) &&
                         rows_aligned({{a.cosine, half}, {a.sine, half}}, a.rows, sizeof(float));
    if (aligned) {
      run_rope<T, kPack<T>>(a, stream);
    } else {
      run_rope<T, 1>(a, stream);
    }
  });
}

}  // namespace longhaul::kernels::cuda
