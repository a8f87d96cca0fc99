// LoRA's narrow products of an input under dropout. x is read once, 16 bytes a thread, masked in registers and given to
// the tensor cores as it lies there: the order of k inside a product is free, and where a product wants neighbouring rows
// of a column, pairs of rows are interleaved. No shared memory on the way, no masked copy of x. Sums go in an order that
// depends on the shape alone.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/scratch.cuh"
#include "kernels/mix.h"

namespace longhaul::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kStrip = 64;        // columns of a warp
constexpr int kBlockRows = 1024;  // of a block that walks down its strip
constexpr int kMostBlocks = 32;   // with partial sums of their own

/// The mask of a call.
struct Mask {
  const std::uint64_t* row_keys;
  std::uint64_t seed_mix;
  std::int64_t first_pair;
  std::uint32_t threshold;  // kept from here on
  float factor;

  explicit Mask(const MaskedProduct& a)
      : row_keys(a.row_keys),
        seed_mix(mix(a.seed_key)),
        first_pair(a.first_column / 2),
        threshold(
            static_cast<std::uint32_t>(std::ceil(static_cast<double>(a.probability) * 0x1.0p24))),
        factor(a.probability < 1.0F ? 1.0F / (1.0F - a.probability) : 0.0F) {}

  __device__ std::uint64_t row_mix(std::int64_t row) const {
    return mix(__ldg(reinterpret_cast<const unsigned long long*>(row_keys) + row) ^ seed_mix);
  }
  /// Ones where the two columns from the even `column` on are kept.
  __device__ std::uint32_t kept(std::uint64_t row_mix, std::int64_t column) const {
    const std::uint64_t word = pair_word(row_mix, first_pair + column / 2);
    return (column_bits(word, 0) >= threshold ? 0x0000FFFFU : 0U) |
           (column_bits(word, 1) >= threshold ? 0xFFFF0000U : 0U);
  }
  /// Eight columns from `column` on.
  __device__ void drop(Vector<BFloat16, 8>& x, std::uint64_t row_mix, std::int64_t column) const {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      x.words[pair] &= kept(row_mix, column + 2 * pair);
    }
  }
};

struct Lane {
  int warp = static_cast<int>(threadIdx.x) / 32;
  int g = static_cast<int>(threadIdx.x) % 32 / 4;
  int t = static_cast<int>(threadIdx.x) % 4;
};

__device__ const BFloat16* bf16(const void* data) { return static_cast<const BFloat16*>(data); }

// u = drop(x)·aᵀ: a block makes 32 rows of u; its warps share the columns and add up.

constexpr int kProductRows = 32;

template <int kTiles>
struct ProductSums {
  float at[2][kTiles][4] = {};  // tiles of 16 rows, of 8 columns of u

  __device__ void put(float* shared, int lane) const {
    each([&](int i, float value) { shared[i * 32 + lane] = value; });
  }
  __device__ void add(const float* shared, int lane) {
    each([&](int i, float& value) { value += shared[i * 32 + lane]; });
  }

 private:
  template <typename Self, typename Use>
  static __device__ void walk(Self& sums, const Use& use) {
#pragma unroll
    for (int i = 0; i < 2 * kTiles * 4; ++i) {
      use(i, sums.at[i / (4 * kTiles)][i / 4 % kTiles][i % 4]);
    }
  }
  template <typename Use>
  __device__ void each(const Use& use) {
    walk(*this, use);
  }
  template <typename Use>
  __device__ void each(const Use& use) const {
    walk(*this, use);
  }
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
  for (int half = kWarps / 2; half > 0; half /= 2) {
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
__global__ void __launch_bounds__(kThreads, 2)
    masked_product_kernel(const MaskedProduct a, const Mask mask) {
  __shared__ float shared[kWarps / 2][kProductRows * 8 * kTiles];
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
  for (std::int64_t column = lane.warp * 32 + 8 * lane.t; column < a.width; column += 32 * kWarps) {
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

// a += uᵀ·drop(x): a block makes 64 columns of a partial sum over some rows; its warps share the rows and add up.

template <int kTiles>
struct GradientSums {
  static constexpr int kPairs = (kTiles + 1) / 2;
  float at[kPairs][8][4] = {};  // 16 rows of a, then columns 8·column + tile: 8 tiles of 8

  /// Adds to (or with `first` begins) what lies in shared memory.
  __device__ void add_to(float (*shared)[kStrip], bool first) const {
    const Lane lane;
#pragma unroll
    for (int i = 0; i < kPairs * 8 * 4; ++i) {
      const int c = i % 4;
      const int row = i / 32 * 16 + c / 2 * 8 + lane.g;
      if (row < 8 * kTiles) {
        float& sum = shared[row][16 * lane.t + c % 2 * 8 + i / 4 % 8];
        sum = (first ? 0.0F : sum) + at[i / 32][i / 4 % 8][c];
      }
    }
  }
};

/// 16 rows from `row` on, those from `end` on as zeros; `mixes` are of the rows from `row` on.
template <int kTiles>
__device__ void add_rows(const MaskedProduct& a, const Mask& mask, std::int64_t row,
                         std::int64_t end, const std::uint64_t* mixes, GradientSums<kTiles>& sums) {
  const Lane lane;
  const std::int64_t column = std::int64_t{blockIdx.x} * kStrip + 8 * lane.g;
  Vector<BFloat16, 8> rows[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int down = min(2 * lane.t + i % 2 + i / 2 * 8, static_cast<int>(end - row) - 1);
    rows[i] = load_vector<8, Memory::kConstant>(bf16(a.x) + (row + down) * a.x_pitch + column);
    mask.drop(rows[i], mixes[down], column);
  }
  std::uint32_t u[2][2 * GradientSums<kTiles>::kPairs] = {};
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) {
    const std::int64_t down = row + i / kTiles * 8 + lane.g;
    const BFloat16* from = bf16(a.u) + down * a.u_pitch + i % kTiles * 8 + 2 * lane.t;
    u[i / kTiles][i % kTiles] =
        transpose(down < end ? load_vector<2, Memory::kConstant>(from).words[0] : 0U);
  }
#pragma unroll
  for (int tile = 0; tile < 8; ++tile) {
    const int word = tile / 2;
    const std::uint32_t b0 = pick(rows[0].words[word], rows[1].words[word], tile % 2);
    const std::uint32_t b1 = pick(rows[2].words[word], rows[3].words[word], tile % 2);
#pragma unroll
    for (int pair = 0; pair < GradientSums<kTiles>::kPairs; ++pair) {
      const std::uint32_t pairs[4] = {u[0][2 * pair], u[0][2 * pair + 1], u[1][2 * pair],
                                      u[1][2 * pair + 1]};
      multiply_add(sums.at[pair][tile], pairs, b0, b1);
    }
  }
}

template <int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles <= 4 ? 2 : 1)
    masked_a_gradient_kernel(const MaskedProduct a, const Mask mask, std::int64_t block_rows,
                             float* partials) {
  __shared__ std::uint64_t mixes[kBlockRows];
  __shared__ float shared[8 * kTiles][kStrip];
  const Lane lane;
  const std::int64_t begin = std::int64_t{blockIdx.y} * block_rows;
  const std::int64_t end = min(begin + block_rows, a.rows);
  GradientSums<kTiles> sums;
  for (std::int64_t first = begin; first < end; first += kBlockRows) {
    const std::int64_t here = min(first + kBlockRows, end);
    __syncthreads();
    for (std::int64_t row = first + threadIdx.x; row < here; row += kThreads) {
      mixes[row - first] = mask.row_mix(row);
    }
    __syncthreads();
    for (std::int64_t row = first + 16 * lane.warp; row < here; row += 16 * kWarps) {
      add_rows(a, mask, row, here, mixes + (row - first), sums);
    }
  }
  for (int warp = 0; warp < kWarps; ++warp) {
    if (lane.warp == warp) {
      sums.add_to(shared, warp == 0);
    }
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < 8 * kTiles * kStrip; i += kThreads) {
    const std::int64_t row = std::int64_t{blockIdx.y} * a.rank + i / kStrip;
    partials[row * a.width + std::int64_t{blockIdx.x} * kStrip + i % kStrip] =
        shared[i / kStrip][i % kStrip];
  }
}

__global__ void __launch_bounds__(kThreads)
    add_gradient_kernel(const MaskedProduct a, float factor, int blocks, const float* partials) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= a.width) {
    return;
  }
  float sum = 0.0F;
  for (int block = 0; block < blocks; ++block) {
    sum += partials[(block * a.rank + blockIdx.y) * a.width + column];
  }
  static_cast<float*>(a.a)[blockIdx.y * a.a_pitch + column] += factor * sum;
}

// x += drop(u·a): a block walks down 64 columns with a in registers; every warp has rows of its own.

/// 64 columns of a, as multiply_add wants them: eight tiles of columns 8·column + tile.
template <int kTiles>
struct Strip {
  static constexpr int kSteps = (kTiles + 1) / 2;  // of 16 rows of a; the last may have 8
  std::uint32_t at[kSteps][8][2] = {};

  __device__ explicit Strip(const MaskedProduct& a) {
    const Lane lane;
    const BFloat16* strip = bf16(a.a) + std::int64_t{blockIdx.x} * kStrip + 8 * lane.g;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const bool whole = 2 * step + 2 <= kTiles;
#pragma unroll
      for (int half = 0; half < (whole ? 2 : 1); ++half) {
        const int row = 16 * step + (whole ? 4 * lane.t + 2 * half : 2 * lane.t);
        const auto first = load_vector<8, Memory::kConstant>(strip + row * a.a_pitch);
        const auto second = load_vector<8, Memory::kConstant>(strip + (row + 1) * a.a_pitch);
#pragma unroll
        for (int tile = 0; tile < 8; ++tile) {
          at[step][tile][half] = pick(first.words[tile / 2], second.words[tile / 2], tile % 2);
        }
      }
    }
  }

  /// c [16, 64] = u·a for rows g and g + 8 of u, which the two pointers begin.
  __device__ void product(const BFloat16* const (&u)[2], float (&c)[8][4]) const {
    const Lane lane;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t pairs[4] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (2 * step + 2 <= kTiles) {
          const auto four = load_vector<4, Memory::kConstant>(u[i] + 16 * step + 4 * lane.t);
          pairs[i] = four.words[0];
          pairs[i + 2] = four.words[1];
        } else {
          pairs[i] = load_vector<2, Memory::kConstant>(u[i] + 16 * step + 2 * lane.t).words[0];
        }
      }
#pragma unroll
      for (int tile = 0; tile < 8; ++tile) {
        multiply_add(c[tile], pairs, at[step][tile][0], at[step][tile][1]);
      }
    }
  }
};

template <int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles <= 6 ? 2 : 1)
    masked_x_gradient_kernel(const MaskedProduct a, const Mask mask) {
  const Lane lane;
  const std::int64_t begin = std::int64_t{blockIdx.y} * kBlockRows;
  const std::int64_t end = min(begin + kBlockRows, a.rows);
  const std::int64_t column = std::int64_t{blockIdx.x} * kStrip + 16 * lane.t;
  const Strip<kTiles> strip(a);
  for (std::int64_t first = begin + 16 * lane.warp; first < end; first += 16 * kWarps) {
    BFloat16* x[2];
    const BFloat16* u[2];
    Vector<BFloat16, 8> sums[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t row = min(first + 8 * i + lane.g, end - 1);
      x[i] = static_cast<BFloat16*>(a.x) + row * a.x_pitch + column;
      u[i] = bf16(a.u) + row * a.u_pitch;
      sums[2 * i] = load_vector<8>(x[i]);
      sums[2 * i + 1] = load_vector<8>(x[i] + 8);
    }
    float c[8][4] = {};
    strip.product(u, c);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // 8 columns of a row
      const std::int64_t row = first + i / 2 * 8 + lane.g;
      if (row >= end) {
        continue;
      }
      const std::uint64_t row_mix = mask.row_mix(row);
      float out[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        out[j] = c[j][i] * mask.factor;
      }
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const std::uint32_t kept = mask.kept(row_mix, column + i % 2 * 8 + 2 * pair);
        out[2 * pair] = sums[i][2 * pair] + ((kept & 1U) != 0 ? out[2 * pair] : 0.0F);
        out[2 * pair + 1] =
            sums[i][2 * pair + 1] + ((kept & 0x10000U) != 0 ? out[2 * pair + 1] : 0.0F);
      }
      store_vector(x[i / 2] + i % 2 * 8, to_vector<BFloat16>(out));
    }
  }
}

/// Calls `run` with the rank's number of tiles of 8 as a constant.
template <typename Run>
void dispatch_tiles(const MaskedProduct& a, const Run& run) {
  LONGHAUL_ASSERT(takes_masked_product(a), "a shape that masked products take");
  switch (a.rank / 8) {
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
      return run(std::integral_constant<int, 8>());
  }
}

unsigned strips(const MaskedProduct& a) { return static_cast<unsigned>(a.width / kStrip); }

}  // namespace

void masked_product(const MaskedProduct& a, Stream stream) {
  if (a.rows == 0) {
    return;
  }
  const auto blocks = static_cast<unsigned>(divide_up(a.rows, kProductRows));
  dispatch_tiles(a, [&](auto tiles) {
    launch("masked_product", masked_product_kernel<tiles()>, dim3(blocks), kThreads, stream, a,
           Mask(a));
  });
}

void masked_a_gradient(const MaskedProduct& a, Stream stream) {
  if (a.rows == 0) {
    return;
  }
  const std::int64_t wanted = std::min<std::int64_t>(kMostBlocks, divide_up(a.rows, kBlockRows));
  const std::int64_t block_rows = divide_up(divide_up(a.rows, wanted), 16) * 16;
  const auto blocks = static_cast<unsigned>(divide_up(a.rows, block_rows));
  const Scratch partials(static_cast<std::size_t>(blocks * a.rank * a.width) * sizeof(float),
                         stream);
  const Mask mask(a);
  dispatch_tiles(a, [&](auto tiles) {
    launch("masked_a_gradient", masked_a_gradient_kernel<tiles()>, dim3(strips(a), blocks),
           kThreads, stream, a, mask, block_rows, partials.as<float>());
  });
  launch("masked_a_gradient", add_gradient_kernel,
         dim3(static_cast<unsigned>(divide_up(a.width, kThreads)), static_cast<unsigned>(a.rank)),
         kThreads, stream, a, mask.factor, static_cast<int>(blocks), partials.as<float>());
}

void masked_x_gradient(const MaskedProduct& a, Stream stream) {
  if (a.rows == 0) {
    return;
  }
  const auto blocks = static_cast<unsigned>(divide_up(a.rows, kBlockRows));
  dispatch_tiles(a, [&](auto tiles) {
    launch("masked_x_gradient", masked_x_gradient_kernel<tiles()>, dim3(strips(a), blocks),
           kThreads, stream, a, Mask(a));
  });
}

}  // namespace longhaul::kernels::cuda
