// Σ x² in fp64. Which thread adds which values depends on their count alone, not on where they lie;
// the host adds the sums of the blocks in order.
#include <algorithm>
#include <vector>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scratch.cuh"
#include "kernels/cuda/team.cuh"

namespace longhaul::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // independent loads of a thread
constexpr std::int64_t kTile = std::int64_t{kThreads} * kVectors * 4;
constexpr std::int64_t kMaxBlocks = 528;

template <bool kWhole>
__device__ void load_tile(const float* values, std::int64_t tile, std::int64_t count,
                          float (&to)[kVectors][4]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t at = tile + (v * kThreads + static_cast<int>(threadIdx.x)) * 4;
    load_floats<kWhole, Memory::kConstant>(values + at, count - at, to[v]);
  }
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    sum_of_squares_kernel(const float* values, std::int64_t count, double* partials) {
  double sum = 0.0;
  for (std::int64_t tile = blockIdx.x * kTile; tile < count; tile += gridDim.x * kTile) {
    float four[kVectors][4];
    if (kAligned && tile + kTile <= count) {
      load_tile<true>(values, tile, count, four);
    } else {
      load_tile<false>(values, tile, count, four);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto value = static_cast<double>(four[v][i]);
        sum += value * value;
      }
    }
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
  }
}

}  // namespace

double sum_of_squares(const float* values, std::int64_t count, Stream stream) {
  const std::int64_t blocks = std::min(kMaxBlocks, divide_up(count, kTile));
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  if (blocks > 0) {
    const std::size_t bytes = sums.size() * sizeof(double);
    const Scratch partials(bytes, stream);
    const bool aligned = rows_aligned({{values, 0}}, 1, sizeof(float));
    launch("sum_of_squares", aligned ? sum_of_squares_kernel<true> : sum_of_squares_kernel<false>,
           dim3(static_cast<unsigned>(blocks)), kThreads, stream, values, count,
           partials.as<double>());
    check(cudaMemcpyAsync(sums.data(), partials.as<double>(), bytes, cudaMemcpyDeviceToHost,
                          stream_of(stream)),
          "sum_of_squares");
  }
  check(cudaStreamSynchronize(stream_of(stream)), "sum_of_squares");
  double total = 0.0;
  for (const double sum : sums) {
    total += sum;
  }
  return total;
}

}  // namespace longhaul::kernels::cuda
