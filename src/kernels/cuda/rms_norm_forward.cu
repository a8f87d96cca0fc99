// y = x · rstd · weight. One read of x: a team keeps its group in registers between the sum of
// squares and the product.
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/rms_norm.cuh"

namespace longhaul::kernels::cuda {
namespace {

template <typename T>
__device__ float squares(const Vector<T, kPack<T>>& x) {
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    sum = fmaf(x[i], x[i], sum);
  }
  return sum;
}

/// The group of one team.
template <typename T, bool kWhole>
struct ForwardGroup {
  static constexpr int N = kPack<T>;
  const T* x;
  const T* weight;
  T* y;
  int width;

  __device__ Vector<T, N> load(int at) const {
    return load_part<kWhole>(x + std::int64_t{at} * N, width - at * N);
  }
  __device__ Vector<T, N> load_weight(int at) const {
    return load_part<kWhole, Memory::kConstant>(weight + std::int64_t{at} * N, width - at * N);
  }
  __device__ void finish(int at, const Vector<T, N>& values, const Vector<T, N>& w,
                         float rstd) const {
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      out[i] = values[i] * rstd * w[i];
    }
    store_part<kWhole>(y + std::int64_t{at} * N, width - at * N, to_vector<T>(out));
  }
};

template <typename T, bool kWhole, typename Shape>
__global__ void __launch_bounds__(Shape::kBlock)
    rms_norm_forward_kernel(RmsNormForward a, std::int64_t first_row, std::uint32_t total,
                            FastDivide groups) {
  constexpr int N = kPack<T>;
  __shared__ typename TeamSum<Shape>::Storage storage;
  TeamSum<Shape> team_sum(storage);
  const TeamPlace place =
      find_place<Shape, N>(blockIdx.x * Shape::kTeams, total, groups, first_row, a.width);
  const std::int64_t offset = place.group * a.width;
  const ForwardGroup<T, kWhole> group{
      static_cast<const T*>(a.x) + place.row * a.x_pitch + offset, static_cast<const T*>(a.weight),
      static_cast<T*>(a.y) + (a.y == nullptr ? 0 : place.row * a.y_pitch + offset),
      static_cast<int>(a.width)};
  // Weights too before the sum: read after it, their latency would add to that of x.
  Vector<T, N> kept[Shape::kVectors] = {};
  Vector<T, N> weights[Shape::kVectors] = {};
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    const int at = place.lane + v * Shape::kThreads;
    if (at < place.vectors) {
      kept[v] = group.load(at);
      weights[v] = group.load_weight(at);
    }
  }
  float sum = 0.0F;
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    sum += squares<T>(kept[v]);
  }
  for (int at = place.lane + Shape::kCapacity; at < place.vectors; at += Shape::kThreads) {
    sum += squares<T>(group.load(at));
  }
  const float rstd = 1.0F / sqrtf(team_sum(sum) / static_cast<float>(a.width) + a.eps);
  if (place.lane == 0 && place.vectors > 0) {
    a.rstd[place.row * a.groups + place.group] = rstd;
  }
  if (a.y == nullptr) {
    return;
  }
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    const int at = place.lane + v * Shape::kThreads;
    if (at < place.vectors) {
      group.finish(at, kept[v], weights[v], rstd);
    }
  }
  for (int at = place.lane + Shape::kCapacity; at < place.vectors; at += Shape::kThreads) {
    group.finish(at, group.load(at), group.load_weight(at), rstd);
  }
}

template <typename T, bool kWhole, typename Shape>
void run_forward(const RmsNormForward& a, Stream stream) {
  const std::int64_t limit = rows_per_launch(a.groups);
  for (std::int64_t first = 0; first < a.rows; first += limit) {
    const std::int64_t total = std::min(limit, a.rows - first) * a.groups;
    const auto blocks = static_cast<unsigned>(divide_up(total, Shape::kTeams));
    launch("rms_norm_forward", rms_norm_forward_kernel<T, kWhole, Shape>, dim3(blocks),
           Shape::kBlock, stream, a, first, static_cast<std::uint32_t>(total),
           FastDivide(static_cast<std::uint32_t>(a.groups)));
  }
}

}  // namespace

void rms_norm_forward(const RmsNormForward& a, Stream stream) {
  check_norm_shape(a.groups, a.width);
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool whole =
        groups_whole<T>({{a.x, a.x_pitch}, {a.y, a.y_pitch}, {a.weight, a.width}}, a.rows, a.width);
    dispatch_team(divide_up(a.width, kPack<T>), [&](auto shape) {
      if (whole) {
        run_forward<T, true, decltype(shape)>(a, stream);
      } else {
        run_forward<T, false, decltype(shape)>(a, stream);
      }
    });
  });
}

}  // namespace longhaul::kernels::cuda
