// dx and dweight of RMSNorm in one pass over x and dy. A thread keeps its columns of dweight in
// registers over all groups of its team; the sums of a block then go to scratch memory, and a
// second kernel adds the blocks in order. The number of blocks depends on the shape alone.
// Multiply-adds are written out: left to the compiler, variants of the kernel could round
// differently.
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/rms_norm.cuh"
#include "kernels/cuda/scratch.cuh"

namespace longhaul::kernels::cuda {
namespace {

/// Blocks that share the sum of dweight: four for each multiprocessor of the devices this is made
/// for, but enough groups for each team that the second kernel stays cheap.
constexpr std::int64_t kMaxBlocks = 528;
constexpr std::int64_t kGroupsPerTeam = 4;

/// One group as its team sees it; `at` counts vectors.
template <typename T, bool kWhole>
struct BackwardGroup {
  static constexpr int N = kPack<T>;
  using Pack = Vector<T, N>;
  const T* x;
  const T* weight;
  const T* dy;
  const T* add;
  T* dx;
  int width;
  float rstd;

  __device__ Pack load(const T* from, int at) const {
    return load_part<kWhole>(from + std::int64_t{at} * N, width - at * N);
  }
  __device__ Pack load_weight(int at) const {
    return load_part<kWhole, Memory::kConstant>(weight + std::int64_t{at} * N, width - at * N);
  }
  __device__ Pack load_add(int at) const { return add == nullptr ? Pack{} : load(add, at); }

  /// This vector's part of Σ dy · weight · x.
  static __device__ float dot(const Pack& w, const Pack& x_at, const Pack& dy_at) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sum = fmaf(dy_at[i] * w[i], x_at[i], sum);
    }
    return sum;
  }
  __device__ void finish(int at, const Pack& w, const Pack& x_at, const Pack& dy_at,
                         const Pack& add_at, float mean) const {
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      out[i] = fmaf(rstd, fmaf(dy_at[i], w[i], -(x_at[i] * mean)), add_at[i]);
    }
    store_part<kWhole>(dx + std::int64_t{at} * N, width - at * N, to_vector<T>(out));
  }
};

template <typename T, bool kWhole>
__device__ BackwardGroup<T, kWhole> group_at(const RmsNormBackward& a, const TeamPlace& place) {
  const std::int64_t offset = place.group * a.width;
  return {
      static_cast<const T*>(a.x) + place.row * a.x_pitch + offset,
      static_cast<const T*>(a.weight),
      static_cast<const T*>(a.dy) + place.row * a.dy_pitch + offset,
      a.add == nullptr ? nullptr : static_cast<const T*>(a.add) + place.row * a.add_pitch + offset,
      static_cast<T*>(a.dx) + place.row * a.dx_pitch + offset,
      static_cast<int>(a.width),
      a.rstd[place.row * a.groups + place.group]};
}

/// A thread's columns of dweight: those of its vectors in registers, those beyond the shape in the
/// block's row of scratch memory, which the first group overwrites.
template <typename T, typename Shape, bool kWanted>
struct WeightSums {
  static constexpr int N = kPack<T>;
  float kept[kWanted ? Shape::kVectors * N : 1] = {};
  float* partial;

  __device__ void add(int v, const Vector<T, N>& x, const Vector<T, N>& dy, float rstd) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      kept[v * N + i] = fmaf(dy[i] * x[i], rstd, kept[v * N + i]);
    }
  }
  __device__ void add_beyond(int at, const Vector<T, N>& x, const Vector<T, N>& dy, float rstd,
                             bool is_first) {
    float* sums = partial + std::int64_t{at} * N;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sums[i] = fmaf(dy[i] * x[i], rstd, is_first ? 0.0F : sums[i]);
    }
  }
  /// Writes what registers hold to the block's row: sums over the teams of the block, in order.
  __device__ void finish(int vectors) {
    const int lane = threadIdx.x % Shape::kThreads;
    if constexpr (Shape::kWholeBlock) {
#pragma unroll
      for (int v = 0; v < Shape::kVectors; ++v) {
        const int at = lane + v * Shape::kThreads;
#pragma unroll
        for (int i = 0; i < N && at < vectors; ++i) {
          partial[at * N + i] = kept[v * N + i];
        }
      }
    } else {
      constexpr int kColumns = Shape::kCapacity * N;
      __shared__ float sums[Shape::kTeams][kColumns];
#pragma unroll
      for (int v = 0; v < Shape::kVectors; ++v) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          sums[threadIdx.x / Shape::kThreads][(lane + v * Shape::kThreads) * N + i] =
              kept[v * N + i];
        }
      }
      __syncthreads();
      for (int column = threadIdx.x; column < vectors * N; column += Shape::kBlock) {
        float sum = 0.0F;
        for (int team = 0; team < Shape::kTeams; ++team) {
          sum += sums[team][column];
        }
        partial[column] = sum;
      }
    }
  }
};

/// A thread's vectors of one group, or of the weights.
template <typename T, typename Shape>
struct Packs {
  Vector<T, kPack<T>> at[Shape::kVectors] = {};
};

/// dx of one group, by its team; adds the group's part of dweight to `sums`.
template <typename T, bool kWhole, bool kWeight, typename Shape>
__device__ void group_backward(const BackwardGroup<T, kWhole>& group, const TeamPlace& place,
                               const Packs<T, Shape>& weights, TeamSum<Shape>& team_sum,
                               WeightSums<T, Shape, kWeight>& sums, bool is_first) {
  Packs<T, Shape> x;
  Packs<T, Shape> dy;
  Packs<T, Shape> add;
  const int beyond = place.lane + Shape::kCapacity;
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    const int at = place.lane + v * Shape::kThreads;
    if (at < place.vectors) {
      x.at[v] = group.load(group.x, at);
      dy.at[v] = group.load(group.dy, at);
      add.at[v] = group.load_add(at);
    }
  }
  float dot = 0.0F;
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    dot += group.dot(weights.at[v], x.at[v], dy.at[v]);
  }
  for (int at = beyond; at < place.vectors; at += Shape::kThreads) {
    dot += group.dot(group.load_weight(at), group.load(group.x, at), group.load(group.dy, at));
  }
  const float mean = team_sum(dot) * group.rstd * group.rstd / static_cast<float>(group.width);
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    const int at = place.lane + v * Shape::kThreads;
    if (at < place.vectors) {
      if constexpr (kWeight) {
        sums.add(v, x.at[v], dy.at[v], group.rstd);
      }
      group.finish(at, weights.at[v], x.at[v], dy.at[v], add.at[v], mean);
    }
  }
  for (int at = beyond; at < place.vectors; at += Shape::kThreads) {
    const Vector<T, kPack<T>> x_at = group.load(group.x, at);
    const Vector<T, kPack<T>> dy_at = group.load(group.dy, at);
    const Vector<T, kPack<T>> add_at = group.load_add(at);
    if constexpr (kWeight) {
      sums.add_beyond(at, x_at, dy_at, group.rstd, is_first);
    }
    group.finish(at, group.load_weight(at), x_at, dy_at, add_at, mean);
  }
}

/// Threads of a multiprocessor that the registers leave room for.
template <bool kWeight>
inline constexpr int kResidentThreads = kWeight ? 512 : 640;

template <typename T, bool kWhole, bool kWeight, typename Shape>
__global__ void __launch_bounds__(Shape::kBlock, kResidentThreads<kWeight> / Shape::kBlock)
    rms_norm_backward_kernel(RmsNormBackward a, std::int64_t first_row, std::uint32_t total,
                             FastDivide groups, float* partials) {
  constexpr int N = kPack<T>;
  __shared__ typename TeamSum<Shape>::Storage storage;
  TeamSum<Shape> team_sum(storage);
  const int vectors = static_cast<int>((a.width + N - 1) / N);
  WeightSums<T, Shape, kWeight> weight_sums{
      .partial = kWeight ? partials + std::int64_t{blockIdx.x} * vectors * N : nullptr};
  const std::uint32_t begin = blockIdx.x * Shape::kTeams;
  Packs<T, Shape> weights;
#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) {
    const int at = static_cast<int>(threadIdx.x % Shape::kThreads) + v * Shape::kThreads;
    if (at < vectors) {
      weights.at[v] = load_part<kWhole, Memory::kConstant>(
          static_cast<const T*>(a.weight) + std::int64_t{at} * N,
          static_cast<int>(a.width) - at * N);
    }
  }
  for (std::uint32_t first = begin; first < total; first += gridDim.x * Shape::kTeams) {
    const TeamPlace place = find_place<Shape, N>(first, total, groups, first_row, a.width);
    group_backward(group_at<T, kWhole>(a, place), place, weights, team_sum, weight_sums,
                   first == begin);
  }
  if constexpr (kWeight) {
    weight_sums.finish(vectors);
  }
}

constexpr int kSumColumns = 32;
constexpr int kSumSlices = 16;

/// dweight += Σ partials over the blocks: a thread adds every 16th block, then the slices are added
/// in order.
__global__ void __launch_bounds__(kSumColumns* kSumSlices)
    add_partials_kernel(const float* partials, int blocks, std::int64_t pitch, float* dweight,
                        std::int64_t width) {
  __shared__ float sums[kSumSlices][kSumColumns];
  const int lane = threadIdx.x % kSumColumns;
  const int slice = threadIdx.x / kSumColumns;
  const std::int64_t column = std::int64_t{blockIdx.x} * kSumColumns + lane;
  float sum = 0.0F;
  if (column < width) {
#pragma unroll 8
    for (int block = slice; block < blocks; block += kSumSlices) {
      sum += partials[block * pitch + column];
    }
  }
  sums[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || column >= width) {
    return;
  }
#pragma unroll
  for (int i = 1; i < kSumSlices; ++i) {
    sum += sums[i][lane];
  }
  dweight[column] += sum;
}

template <typename T, bool kWhole, typename Shape>
void run_backward(const RmsNormBackward& a, Stream stream) {
  const std::int64_t limit = rows_per_launch(a.groups);
  const FastDivide groups(static_cast<std::uint32_t>(a.groups));
  for (std::int64_t first = 0; first < a.rows; first += limit) {
    const std::int64_t groups_here = std::min(limit, a.rows - first) * a.groups;
    const auto total = static_cast<std::uint32_t>(groups_here);
    if (a.dweight == nullptr) {
      const auto blocks = static_cast<unsigned>(divide_up(groups_here, Shape::kTeams));
      launch("rms_norm_backward", rms_norm_backward_kernel<T, kWhole, false, Shape>, dim3(blocks),
             Shape::kBlock, stream, a, first, total, groups, static_cast<float*>(nullptr));
      continue;
    }
    const auto blocks = static_cast<unsigned>(
        std::min(kMaxBlocks, divide_up(groups_here, Shape::kTeams * kGroupsPerTeam)));
    const std::int64_t pitch = divide_up(a.width, kPack<T>) * kPack<T>;
    const Scratch partials(static_cast<std::size_t>(blocks * pitch) * sizeof(float), stream);
    launch("rms_norm_backward", rms_norm_backward_kernel<T, kWhole, true, Shape>, dim3(blocks),
           Shape::kBlock, stream, a, first, total, groups, partials.as<float>());
    launch("rms_norm_backward", add_partials_kernel,
           dim3(static_cast<unsigned>(divide_up(a.width, kSumColumns))), kSumColumns * kSumSlices,
           stream, partials.as<float>(), static_cast<int>(blocks), pitch, a.dweight, a.width);
  }
}

}  // namespace

void rms_norm_backward(const RmsNormBackward& a, Stream stream) {
  check_norm_shape(a.groups, a.width);
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool whole = groups_whole<T>({{a.x, a.x_pitch},
                                        {a.weight, a.width},
                                        {a.dy, a.dy_pitch},
                                        {a.add, a.add_pitch},
                                        {a.dx, a.dx_pitch}},
                                       a.rows, a.width);
    dispatch_team(divide_up(a.width, kPack<T>), [&](auto shape) {
      if (whole) {
        run_backward<T, true, decltype(shape)>(a, stream);
      } else {
        run_backward<T, false, decltype(shape)>(a, stream);
      }
    });
  });
}

}  // namespace longhaul::kernels::cuda
