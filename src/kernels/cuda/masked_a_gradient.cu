// a += uᵀ·drop(x): a block makes 64 columns of a partial sum over some rows; its warps share the rows and add up.
#include <algorithm>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/masked_product.cuh"
#include "kernels/cuda/scratch.cuh"

namespace longhaul::kernels::cuda {
namespace {

constexpr int kMixedRows = 1024;     // whose keys a block mixes at once
constexpr int kLeastRows = 512;      // of a part of the rows, which has partial sums of its own
constexpr int kEnoughBlocks = 1056;  // eight per multiprocessor of an H100
constexpr std::int64_t kMostPartialBytes = std::int64_t{64} << 20;

/// 16 rows of x and u, as they come from memory.
template <int kTiles>
struct GradientRows {
  Vector<BFloat16, 8> x[4];    // rows 2t, 2t + 1, 2t + 8, 2t + 9
  std::uint32_t u[2][kTiles];  // rows g and g + 8

  /// From `row` on; rows from `end` on are zeros.
  __device__ void load(const MaskedProduct& a, std::int64_t row, std::int64_t end) {
    const Lane lane;
    const std::int64_t column = std::int64_t{blockIdx.x} * kStrip + 8 * lane.g;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t down = row + row_of(i);
      x[i] = Vector<BFloat16, 8>{};
      if (down < end) {
        x[i] = load_vector<8, Memory::kConstant>(bf16(a.x) + down * a.x_pitch + column);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t down = row + 8 * i + lane.g;
      const BFloat16* from = bf16(a.u) + down * a.u_pitch + 2 * lane.t;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        u[i][tile] = down < end ? load_vector<2, Memory::kConstant>(from + 8 * tile).words[0] : 0U;
      }
    }
  }
  /// Which of the 16 rows x[i] is.
  static __device__ int row_of(int i) { return 2 * Lane().t + i % 2 + i / 2 * 8; }
};

template <int kTiles>
struct GradientSums {
  static constexpr int kPairs = (kTiles + 1) / 2;
  float at[kPairs][8][4] = {};  // 16 rows of a, then columns 8·column + tile: 8 tiles of 8

  /// `mixes` are of the 16 rows; rows of zeros may have any.
  __device__ void add(GradientRows<kTiles>& rows, const Mask& mask, const std::uint64_t* mixes) {
    const Lane lane;
    const std::int64_t column = std::int64_t{blockIdx.x} * kStrip + 8 * lane.g;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      mask.drop(rows.x[i], mixes[GradientRows<kTiles>::row_of(i)], column);
    }
    std::uint32_t u[2][2 * kPairs] = {};
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      u[i / kTiles][i % kTiles] = transpose(rows.u[i / kTiles][i % kTiles]);
    }
#pragma unroll
    for (int tile = 0; tile < 8; ++tile) {
      const int word = tile / 2;
      const std::uint32_t b0 = pick(rows.x[0].words[word], rows.x[1].words[word], tile % 2);
      const std::uint32_t b1 = pick(rows.x[2].words[word], rows.x[3].words[word], tile % 2);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const std::uint32_t pairs[4] = {u[0][2 * pair], u[0][2 * pair + 1], u[1][2 * pair],
                                        u[1][2 * pair + 1]};
        multiply_add(at[pair][tile], pairs, b0, b1);
      }
    }
  }
};

/// What each warp puts of 16 rows of a: its lanes' values side by side, a place between the 32s so that at most two lanes
/// meet in a bank.
constexpr int kGradientPitch = 33;
using GradientPart = float[8 * 4 * kGradientPitch];

/// Adds up the sums of all warps, 16 rows of a after the other, and stores them.
template <int kTiles>
__device__ void store_gradient(const MaskedProduct& a, const GradientSums<kTiles>& sums,
                               GradientPart (&shared)[kMaskedWarps], float* partial) {
  const Lane lane;
#pragma unroll
  for (int pair = 0; pair < GradientSums<kTiles>::kPairs; ++pair) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8 * 4; ++i) {
      shared[lane.warp][i * kGradientPitch + 4 * lane.g + lane.t] = sums.at[pair][i / 4][i % 4];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < 16 * kStrip; i += kMaskedThreads) {
      const int row = i / kStrip;
      const int column = i % kStrip;
      if (16 * pair + row >= 8 * kTiles) {
        continue;
      }
      const int value = column % 8 * 4 + row / 8 * 2 + column / 8 % 2;
      const int place = value * kGradientPitch + 4 * (row % 8) + column / 16;
      float sum = 0.0F;
#pragma unroll
      for (int warp = 0; warp < kMaskedWarps; ++warp) {
        sum += shared[warp][place];
      }
      partial[(16 * pair + row) * a.width + std::int64_t{blockIdx.x} * kStrip + column] = sum;
    }
  }
}

template <int kTiles>
__global__ void __launch_bounds__(kMaskedThreads, kTiles <= 2 ? 2 : 1)
    masked_a_gradient_kernel(const MaskedProduct a, const Mask mask, std::int64_t block_rows,
                             float* partials) {
  static_assert(kMixedRows % 16 == 0);
  __shared__ std::uint64_t mixes[kMixedRows];
  __shared__ GradientPart shared[kMaskedWarps];
  const Lane lane;
  const std::int64_t begin = std::int64_t{blockIdx.y} * block_rows;
  const std::int64_t end = min(begin + block_rows, a.rows);
  GradientSums<kTiles> sums;
  GradientRows<kTiles> next;
  for (std::int64_t first = begin; first < end; first += kMixedRows) {
    const std::int64_t here = min(first + kMixedRows, end);
    __syncthreads();
    for (std::int64_t row = first + threadIdx.x; row < here; row += kMaskedThreads) {
      mixes[row - first] = mask.row_mix(row);
    }
    __syncthreads();
    std::int64_t row = first + 16 * lane.warp;
    if (row < here) {
      next.load(a, row, here);
    }
    for (; row < here; row += 16 * kMaskedWarps) {
      GradientRows<kTiles> rows = next;
      if (row + 16 * kMaskedWarps < here) {
        next.load(a, row + 16 * kMaskedWarps, here);
      }
      sums.add(rows, mask, mixes + (row - first));
    }
  }
  store_gradient(a, sums, shared, partials + std::int64_t{blockIdx.y} * a.rank * a.width);
}

__global__ void __launch_bounds__(kMaskedThreads)
    add_gradient_kernel(const MaskedProduct a, float factor, int blocks, const float* partials) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kMaskedThreads + threadIdx.x;
  if (column >= a.width) {
    return;
  }
  float sum = 0.0F;
  for (int block = 0; block < blocks; ++block) {
    sum += partials[(block * a.rank + blockIdx.y) * a.width + column];
  }
  static_cast<float*>(a.a)[blockIdx.y * a.a_pitch + column] += factor * sum;
}

/// Enough parts to keep the device busy, none too short to be worth its partial sums.
std::int64_t rows_of_part(const MaskedProduct& a) {
  const std::int64_t part_bytes = a.rank * a.width * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t parts =
      std::min({divide_up(kEnoughBlocks, strips(a)), std::max<std::int64_t>(1, a.rows / kLeastRows),
                std::max<std::int64_t>(1, kMostPartialBytes / part_bytes)});
  return divide_up(divide_up(a.rows, parts), 16) * 16;
}

}  // namespace

void masked_a_gradient(const MaskedProduct& a, Stream stream) {
  if (a.rows == 0) {
    return;
  }
  const std::int64_t block_rows = rows_of_part(a);
  const auto blocks = static_cast<unsigned>(divide_up(a.rows, block_rows));
  const Scratch partials(static_cast<std::size_t>(blocks * a.rank * a.width) * sizeof(float),
                         stream);
  const Mask mask(a);
  dispatch_tiles(a, [&](auto tiles) {
    launch("masked_a_gradient", masked_a_gradient_kernel<tiles()>, dim3(strips(a), blocks),
           kMaskedThreads, stream, a, mask, block_rows, partials.as<float>());
  });
  launch("masked_a_gradient", add_gradient_kernel,
         dim3(static_cast<unsigned>(divide_up(a.width, kMaskedThreads)),
              static_cast<unsigned>(a.rank)),
         kMaskedThreads, stream, a, mask.factor, static_cast<int>(blocks), partials.as<float>());
}

}  // namespace longhaul::kernels::cuda
