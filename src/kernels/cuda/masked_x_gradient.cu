// x += drop(u·a): a block walks down 64 columns with a in registers; every warp has rows of its own.
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/masked_product.cuh"

namespace longhaul::kernels::cuda {
namespace {

constexpr int kBlockRows = 1024;  // of a block that walks down its strip

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
__global__ void __launch_bounds__(kMaskedThreads, kTiles <= 6 ? 2 : 1)
    masked_x_gradient_kernel(const MaskedProduct a, const Mask mask) {
  const Lane lane;
  const std::int64_t begin = std::int64_t{blockIdx.y} * kBlockRows;
  const std::int64_t end = min(begin + kBlockRows, a.rows);
  const std::int64_t column = std::int64_t{blockIdx.x} * kStrip + 16 * lane.t;
  const Strip<kTiles> strip(a);
  for (std::int64_t first = begin + 16 * lane.warp; first < end; first += 16 * kMaskedWarps) {
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

}  // namespace

void masked_x_gradient(const MaskedProduct& a, Stream stream) {
  if (a.rows == 0) {
    return;
  }
  const auto blocks = static_cast<unsigned>(divide_up(a.rows, kBlockRows));
  dispatch_tiles(a, [&](auto tiles) {
    launch("masked_x_gradient", masked_x_gradient_kernel<tiles()>, dim3(strips(a), blocks),
           kMaskedThreads, stream, a, Mask(a));
  });
}

}  // namespace longhaul::kernels::cuda
