// Scaled matrices on their way to other types and pitches, up to kSegments of them in one launch. A
// block works on one segment; how wide its accesses are is the segment's own affair, so a small one
// off a border does not slow the others down.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "kernels/cuda/fast_divide.h"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/part_of_block.cuh"

namespace longhaul::kernels::cuda {
namespace {

constexpr int kSegments = 64;  // a power of two
constexpr int kThreads = 256;
constexpr int kVectors = 4;  // of a thread
constexpr int kBlockItems = kThreads * kVectors;

/// A segment, or some rows of one, as its blocks see it. An item is a vector of columns, or a column.
struct Part {
  const float* from = nullptr;
  void* to = nullptr;
  std::int64_t from_pitch = 0;
  std::int64_t to_pitch = 0;
  FastDivide per_row{1};  // items
  std::uint32_t items = 0;
  float scale = 1;
  bool vectors = false;
};

/// The argument of a launch: below the 4 KiB that every device takes.
struct Parts {
  Part parts[kSegments];
  std::uint32_t first_block[kSegments];  // ascending; none reaches those of absent parts
};
static_assert(sizeof(Parts) <= 4096);

template <typename T, int N>
__device__ void copy_items(const Part& part, std::uint32_t block) {
  const std::uint32_t per_row = part.per_row.divisor();
  const std::uint32_t first = block * kBlockItems + threadIdx.x;
  const float scale = part.scale;
  float values[kVectors][N];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const std::uint32_t at = first + i * kThreads;
    if (at < part.items) {
      const std::uint32_t row = part.per_row.quotient(at);
      const std::int64_t column = std::int64_t{at - row * per_row} * N;
      load_floats<N % 4 == 0, Memory::kConstant>(part.from + row * part.from_pitch + column, N,
                                                 values[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const std::uint32_t at = first + i * kThreads;
    if (at < part.items) {
      const std::uint32_t row = part.per_row.quotient(at);
      const std::int64_t column = std::int64_t{at - row * per_row} * N;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        values[i][j] *= scale;
      }
      store_vector(static_cast<T*>(part.to) + row * part.to_pitch + column,
                   to_vector<T>(values[i]));
    }
  }
}

/// The parts stay in the launch's constant memory, as those of copy_heads do.
template <typename T>
__global__ void __launch_bounds__(kThreads) scaled_copies_kernel(const __grid_constant__ Parts a) {
  const int index = part_of_block(a.first_block);
  const Part& part = a.parts[index];
  const std::uint32_t block = blockIdx.x - a.first_block[index];
  if (part.vectors) {
    copy_items<T, kPack<T>>(part, block);
  } else {
    copy_items<T, 1>(part, block);
  }
}

/// Collects the parts of a launch.
template <typename T>
class Batch {
 public:
  explicit Batch(Stream stream) : stream_(stream) { clear(); }

  /// Launches what has been collected before it takes one part too many.
  void add(const Part& part) {
    if (count_ == kSegments) {
      run();
    }
    parts_.parts[count_] = part;
    parts_.first_block[count_] = static_cast<std::uint32_t>(blocks_);
    blocks_ += divide_up(part.items, kBlockItems);
    ++count_;
  }

  void run() {
    if (count_ > 0) {
      launch("scaled_copies", scaled_copies_kernel<T>, dim3(static_cast<unsigned>(blocks_)),
             kThreads, stream_, parts_);
    }
    clear();
  }

 private:
  void clear() {
    std::fill_n(parts_.first_block, kSegments, std::numeric_limits<std::uint32_t>::max());
    count_ = 0;
    blocks_ = 0;
  }

  Stream stream_;
  Parts parts_;
  int count_ = 0;
  std::int64_t blocks_ = 0;  // at most kSegments · kMaxItems / kBlockItems = 2²⁶
};

/// Whether the segment may be read and written 16 bytes at a time.
template <typename T>
bool takes_vectors(const ScaledSegment& segment) {
  return segment.columns % kPack<T> == 0 &&
         rows_aligned({{segment.from, segment.from_pitch}}, segment.rows, sizeof(float)) &&
         rows_aligned({{segment.to, segment.to_pitch}}, segment.rows, sizeof(T));
}

/// A segment as one part, or as several where its items are too many to be counted in one.
template <typename T>
void add_segment(Batch<T>& batch, const ScaledSegment& segment) {
  const bool vectors = takes_vectors<T>(segment);
  const std::int64_t per_row = vectors ? segment.columns / kPack<T> : segment.columns;
  if (per_row == 0) {
    return;
  }
  LONGHAUL_ASSERT(per_row <= kMaxItems, "a segment has at most 2^30 items in a row");
  const std::int64_t limit = rows_per_launch(per_row);
  for (std::int64_t first = 0; first < segment.rows; first += limit) {
    const std::int64_t rows = std::min(limit, segment.rows - first);
    batch.add({.from = segment.from + first * segment.from_pitch,
               .to = static_cast<T*>(segment.to) + first * segment.to_pitch,
               .from_pitch = segment.from_pitch,
               .to_pitch = segment.to_pitch,
               .per_row = FastDivide(static_cast<std::uint32_t>(per_row)),
               .items = static_cast<std::uint32_t>(rows * per_row),
               .scale = segment.scale,
               .vectors = vectors});
  }
}

}  // namespace

void scaled_copies(const ScaledCopies& a, Stream stream) {
  dispatch(a.dtype, [&](auto tag) {
    Batch<decltype(tag)> batch(stream);
    for (const ScaledSegment& segment :
         std::span(a.segments, static_cast<std::size_t>(a.num_segments))) {
      add_segment(batch, segment);
    }
    batch.run();
  });
}

}  // namespace longhaul::kernels::cuda
