// u = drop(x)·aᵀ: a block makes 32 rows of u; its warps share the columns and add up.
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/masked_product.cuh"

namespace longhaul::kernels::cuda {
namespace {

constexpr int kProductRows = 32;

template <int kTiles>
struct ProductSums {
  float at[2][kTiles][4] = {};  // tiles of 16 rows, of 8 columns of u

  __device__ void put(float* shared, int lane) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      shared[i * 32 + lane] = at[i / (4 * kTiles)][i / 4 % kTiles][i % 4];
    }
  }
  __device__ void add(const float* shared, int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      at[i / (4 * kTiles)][i / 4 % kTiles][i % 4] += shared[i * 32 + lane];
    }
  }

 private:
  static constexpr int kCount = 2 * kTiles * 4;
};

template <int kTiles>
__device__ void store_product(const MaskedProduct& a, std::int64_t first_row, float factor,
                              const ProductSums<kTiles>& sums) {
  const Lane lane;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = first_row + 8 * i + lane.g;
    if (row >= a.rows) {
      continue;
    }
    BFloat16* u = static_cast<BFloat16*>(a.u) + row * a.u_pitch + 2 * lane.t;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const float* c = sums.at[i / 2][tile] + i % 2 * 2;
      store_vector(u + 8 * tile, to_vector<BFloat16, 2>({c[0] * factor, c[1] * factor}));
    }
  }
}

/// The sums of all warps, in those of warp 0: halves add up in pairs.
template <int kTiles>
__device__ void add_warps(ProductSums<kTiles>& sums, float (*shared)[kProductRows * 8 * kTiles]) {
  const int warp = Lane().warp;
  const int in_warp = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = kMaskedWarps / 2; half > 0; half /= 2) {
    if (warp >= half && warp < 2 * half) {
      sums.put(shared[warp - half], in_warp);
    }
    __syncthreads();
    if (warp < half) {
      sums.add(shared[warp], in_warp);
    }
    __syncthreads();
  }
}

template <int kTiles>
__global__ void __launch_bounds__(kMaskedThreads, 2)
    masked_product_kernel(const MaskedProduct a, const Mask mask) {
  __shared__ float shared[kMaskedWarps / 2][kProductRows * 8 * kTiles];
  const Lane lane;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kProductRows;
  const BFloat16* x[4];
  std::uint64_t row_mix[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = min(first_row + 8 * i + lane.g, a.rows - 1);
    x[i] = bf16(a.x) + row * a.x_pitch;
    row_mix[i] = mask.row_mix(row);
  }
  ProductSums<kTiles> sums;
#pragma unroll(kTiles <= 2 ? 2 : 1)
  for (std::int64_t column = lane.warp * 32 + 8 * lane.t; column < a.width;
       column += 32 * kMaskedWarps) {
    Vector<BFloat16, 8> rows[4];
    Vector<BFloat16, 8> columns[kTiles];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[i] = load_vector<8, Memory::kConstant>(x[i] + column);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      columns[tile] =
          load_vector<8, Memory::kConstant>(bf16(a.a) + (8 * tile + lane.g) * a.a_pitch + column);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      mask.drop(rows[i], row_mix[i], column);
    }
#pragma unroll
    for (int k = 0; k < 4; k += 2) {  // 16 of the 32 columns
#pragma unroll
      for (int i = 0; i < 4; i += 2) {  // 16 of the 32 rows
        const std::uint32_t pairs[4] = {rows[i].words[k], rows[i + 1].words[k],
                                        rows[i].words[k + 1], rows[i + 1].words[k + 1]};
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply_add(sums.at[i / 2][tile], pairs, columns[tile].words[k],
                       columns[tile].words[k + 1]);
        }
      }
    }
  }
  add_warps(sums, shared);
  if (lane.warp == 0) {
    store_product(a, first_row, mask.factor, sums);
  }
}

}  // namespace

void masked_product(const MaskedProduct& a, Stream stream) {
  if (a.rows == 0) {
    return;
  }
  const auto blocks = static_cast<unsigned>(divide_up(a.rows, kProductRows));
  dispatch_tiles(a, [&](auto tiles) {
    launch("masked_product", masked_product_kernel<tiles()>, dim3(blocks), kMaskedThreads, stream,
           a, Mask(a));
  });
}

}  // namespace longhaul::kernels::cuda
