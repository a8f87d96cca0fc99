// Element-wise kernels over rows. A body names what one item (a vector of a row) loads and what it
// does with it; the map deals items to threads. Loads of all items of a thread are issued before
// its first store, which a compiler may not do by itself because outputs may alias inputs.
#pragma once

#include "kernels/cuda/fast_divide.h"
#include "kernels/cuda/launch.cuh"

namespace longhaul::kernels::cuda {

inline constexpr int kMapThreads = 256;

template <int kItems, typename Body>
__global__ void __launch_bounds__(kMapThreads)
    map_rows_kernel(Body body, std::int64_t first_row, std::uint32_t total, FastDivide per_row) {
  typename Body::Values values[kItems];
  const std::uint32_t first = blockIdx.x * (kMapThreads * kItems) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const std::uint32_t at = first + i * kMapThreads;
    if (at < total) {
      const std::uint32_t row = per_row.quotient(at);
      values[i] = body.load(first_row + row, at - row * per_row.divisor());
    }
  }
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const std::uint32_t at = first + i * kMapThreads;
    if (at < total) {
      const std::uint32_t row = per_row.quotient(at);
      body.finish(first_row + row, at - row * per_row.divisor(), values[i]);
    }
  }
}

/// Runs `Body` on items 0 … per_row−1 of every row, `kItems` of them in each thread:
///   Values Body::load(std::int64_t row, std::uint32_t item) const
///   void Body::finish(std::int64_t row, std::uint32_t item, const Values&) const
template <int kItems, typename Body>
void map_rows(const char* name, const Body& body, std::int64_t rows, std::int64_t per_row,
              Stream stream) {
  if (rows <= 0 || per_row <= 0) {
    return;
  }
  LONGHAUL_ASSERT(per_row <= kMaxItems, "a row has fewer than 2^30 items");
  const std::int64_t limit = rows_per_launch(per_row);
  for (std::int64_t first = 0; first < rows; first += limit) {
    const std::int64_t total = std::min(limit, rows - first) * per_row;
    const auto blocks = static_cast<unsigned>(divide_up(total, kMapThreads * kItems));
    launch(name, map_rows_kernel<kItems, Body>, dim3(blocks), kMapThreads, stream, body, first,
           static_cast<std::uint32_t>(total), FastDivide(static_cast<std::uint32_t>(per_row)));
  }
}

}  // namespace longhaul::kernels::cuda
