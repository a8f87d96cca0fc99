// Rows of an embedding table: gather copies them, scatter adds gradients to them in row order.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/row_map.cuh"
#include "kernels/cuda/scratch.cuh"
#include "kernels/cuda/team.cuh"

namespace longhaul::kernels::cuda {
namespace {

template <typename T, int N>
struct GatherBody {
  using Values = Vector<T, N>;
  EmbeddingGather a;

  __device__ Values load(std::int64_t row, std::uint32_t item) const {
    const std::int64_t id = __ldg(a.ids + row);
    return load_vector<N, Memory::kConstant>(static_cast<const T*>(a.table) + id * a.width +
                                             std::int64_t{item} * N);
  }
  __device__ void finish(std::int64_t row, std::uint32_t item, const Values& values) const {
    store_vector(static_cast<T*>(a.out) + row * a.out_pitch + std::int64_t{item} * N, values);
  }
};

constexpr int kScatterWarps = 4;
constexpr int kRowsAhead = 8;  // independent loads of a lane

__global__ void number_rows_kernel(std::int32_t* numbers, std::int32_t rows) {
  const std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < rows) {
    numbers[at] = static_cast<std::int32_t>(at);
  }
}

/// `sums` += kRows of the rows whose numbers lie in the lanes of the warp, from lane `first` on and
/// in their order. Loads are unconditional, so that all of them are under way before the first sum.
template <int kRows, typename T, bool kWhole>
__device__ void add_rows(const EmbeddingScatter& a, std::int32_t lane_row, int first,
                         std::int64_t column, int valid, float (&sums)[kPack<T>]) {
  Vector<T, kPack<T>> batch[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t row = __shfl_sync(kAllLanes, lane_row, first + i);
    const T* from = static_cast<const T*>(a.dout) + row * a.dout_pitch + column;
    if constexpr (kWhole) {
      batch[i] = load_vector<kPack<T>, Memory::kConstant>(from);
    } else {
      batch[i] = load_part<false, Memory::kConstant>(from, valid);
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kPack<T>; ++j) {
      sums[j] += batch[i][j];
    }
  }
}

/// A warp for each (position in the sorted ids, 32 vectors of columns); those at the first row of
/// an id work, the others leave at once. So an id is added by one warp, whatever the row count.
template <typename T, bool kWhole>
__global__ void __launch_bounds__(kScatterWarps * 32)
    add_segments_kernel(EmbeddingScatter a, const std::int32_t* sorted_ids,
                        const std::int32_t* sorted_rows) {
  constexpr int N = kPack<T>;
  const int lane = threadIdx.x % 32;
  const std::int64_t position = std::int64_t{blockIdx.x} * kScatterWarps + threadIdx.x / 32;
  if (position >= a.rows) {
    return;
  }
  const std::int32_t id = sorted_ids[position];
  if (position > 0 && sorted_ids[position - 1] == id) {
    return;
  }
  const std::int64_t column = (std::int64_t{blockIdx.y} * 32 + lane) * N;
  const std::int64_t left = a.width - column;
  const int valid = static_cast<int>(left < 0 ? 0 : (left < N ? left : N));
  // Lanes beyond the width take part in the shuffles; they read a column that exists.
  const std::int64_t read_column = valid > 0 ? column : 0;
  float* target = a.dtable + id * a.width + column;
  float sums[N];
  load_floats<kWhole>(target, valid, sums);
  for (std::int64_t begin = position;; begin += 32) {
    const std::int64_t at = begin + lane;
    const bool is_same = at < a.rows && sorted_ids[at] == id;
    const std::int32_t row = is_same ? sorted_rows[at] : 0;
    const int count = __popc(__ballot_sync(kAllLanes, is_same));
    int first = 0;
    for (; first + kRowsAhead <= count; first += kRowsAhead) {
      add_rows<kRowsAhead, T, kWhole>(a, row, first, read_column, valid, sums);
    }
    for (; first < count; ++first) {
      add_rows<1, T, kWhole>(a, row, first, read_column, valid, sums);
    }
    if (count < 32) {
      break;
    }
  }
  store_floats<kWhole>(target, valid, sums);
}

/// Row numbers ordered by id; equal ids stay in row order because the sort is stable.
class SortedRows {
 public:
  SortedRows(const std::int32_t* ids, std::int32_t rows, Stream stream)
      : rows_bytes_(static_cast<std::size_t>(divide_up(rows, 64)) * 64 * sizeof(std::int32_t)),
        memory_(3 * rows_bytes_, stream) {
    constexpr unsigned kThreads = 256;
    launch("embedding_scatter", number_rows_kernel,
           dim3(static_cast<unsigned>(divide_up(rows, kThreads))), kThreads, stream, part(2), rows);
    constexpr int kIdBits = 31;  // ids are not negative
    std::size_t bytes = 0;
    check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, ids, part(0), part(2), part(1), rows, 0,
                                          kIdBits, stream_of(stream)),
          "embedding_scatter");
    const Scratch sorting(bytes, stream);
    check(cub::DeviceRadixSort::SortPairs(sorting.as<void>(), bytes, ids, part(0), part(2), part(1),
                                          rows, 0, kIdBits, stream_of(stream)),
          "embedding_scatter");
  }
  [[nodiscard]] std::int32_t* ids() const { return part(0); }
  [[nodiscard]] std::int32_t* rows() const { return part(1); }

 private:
  [[nodiscard]] std::int32_t* part(std::size_t i) const {
    return memory_.as<std::int32_t>() + i * (rows_bytes_ / sizeof(std::int32_t));
  }

  std::size_t rows_bytes_;
  Scratch memory_;
};

}  // namespace

void embedding_gather(const EmbeddingGather& a, Stream stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool aligned =
        a.width % kPack<T> == 0 &&
        rows_aligned({{a.table, a.width}, {a.out, a.out_pitch}}, a.rows, sizeof(T));
    if (aligned) {
      map_rows<4>("embedding_gather", GatherBody<T, kPack<T>>{a}, a.rows, a.width / kPack<T>,
                  stream);
    } else {
      map_rows<4>("embedding_gather", GatherBody<T, 1>{a}, a.rows, a.width, stream);
    }
  });
}

void embedding_scatter(const EmbeddingScatter& a, Stream stream) {
  if (a.rows <= 0 || a.width <= 0) {
    return;
  }
  constexpr std::int64_t kMaxRows = std::int64_t{1} << 30;
  LONGHAUL_ASSERT(a.rows <= kMaxRows, "a scatter has at most 2^30 rows");
  const SortedRows sorted(a.ids, static_cast<std::int32_t>(a.rows), stream);
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t tiles = divide_up(a.width, 32 * kPack<T>);
    LONGHAUL_ASSERT(tiles <= 65535, "a row of an embedding fits the second dimension of a grid");
    const dim3 grid(static_cast<unsigned>(divide_up(a.rows, kScatterWarps)),
                    static_cast<unsigned>(tiles));
    const bool aligned = a.width % kPack<T> == 0 &&
                         rows_aligned({{a.dout, a.dout_pitch}}, a.rows, sizeof(T)) &&
                         rows_aligned({{a.dtable, a.width}}, 1, sizeof(float));
    launch("embedding_scatter",
           aligned ? add_segments_kernel<T, true> : add_segments_kernel<T, false>, grid,
           kScatterWarps * 32, stream, a, sorted.ids(), sorted.rows());
  });
}

}  // namespace longhaul::kernels::cuda
