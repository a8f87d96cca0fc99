// Column segments from rows to other rows, up to kSegments of them in one launch; heads are turned
// on the way where a segment says so. A block works on one segment, so which one and what is done
// with it is the same for all its threads.
#include <algorithm>
#include <limits>
#include <span>

#include "kernels/cuda/fast_divide.h"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/part_of_block.cuh"
#include "kernels/cuda/rotary.cuh"

namespace longhaul::kernels::cuda {
namespace {

constexpr int kSegments = 32;  // a power of two; q, k and v of ten ranks
constexpr int kThreads = 256;
constexpr int kVectors = 4;  // of a thread that copies; one that turns has a vector of pairs

/// A segment as its blocks see it. An item is a vector of columns, or of pairs when rotated.
struct Part {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t from_pitch = 0;
  std::int64_t to_pitch = 0;
  FastDivide per_row{1};  // items
  bool rotated = false;
};

/// The argument of a launch: below the 4 KiB that every device takes.
struct Parts {
  Part parts[kSegments];
  std::uint32_t first_block[kSegments];  // ascending; none reaches those of absent parts
  const float* cosine = nullptr;
  const float* sine = nullptr;
  std::int64_t half = 0;
  FastDivide per_head{1};  // items
  std::uint32_t rows = 0;
  bool inverse = false;
};
static_assert(sizeof(Parts) <= 4096);

template <typename T, int N>
__device__ void copy_items(const Part& part, std::uint32_t block, std::uint32_t rows) {
  const std::uint32_t per_row = part.per_row.divisor();
  const std::uint32_t total = rows * per_row;
  const std::uint32_t first = block * (kThreads * kVectors) + threadIdx.x;
  Vector<T, N> values[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const std::uint32_t at = first + i * kThreads;
    if (at < total) {
      const std::uint32_t row = part.per_row.quotient(at);
      const std::int64_t column = std::int64_t{at - row * per_row} * N;
      values[i] = load_vector<N, Memory::kConstant>(static_cast<const T*>(part.from) +
                                                    row * part.from_pitch + column);
    }
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const std::uint32_t at = first + i * kThreads;
    if (at < total) {
      const std::uint32_t row = part.per_row.quotient(at);
      const std::int64_t column = std::int64_t{at - row * per_row} * N;
      store_vector(static_cast<T*>(part.to) + row * part.to_pitch + column, values[i]);
    }
  }
}

template <typename T, int N>
__device__ void turn_item(const Parts& a, const Part& part, std::uint32_t block) {
  const std::uint32_t per_row = part.per_row.divisor();
  const std::uint32_t at = block * kThreads + threadIdx.x;
  if (at >= a.rows * per_row) {
    return;
  }
  const std::uint32_t row = part.per_row.quotient(at);
  const std::uint32_t item = at - row * per_row;
  const std::uint32_t head = a.per_head.quotient(item);
  const std::int64_t pair = std::int64_t{item - head * a.per_head.divisor()} * N;
  const std::int64_t column = head * 2 * a.half + pair;
  const std::int64_t angle = row * a.half + pair;
  const auto pairs = load_pairs<N, Memory::kConstant>(
      static_cast<const T*>(part.from) + row * part.from_pitch + column, a.half, a.cosine + angle,
      a.sine + angle);
  store_turned(static_cast<T*>(part.to) + row * part.to_pitch + column, a.half, pairs, a.inverse);
}

/// The parts stay in the launch's constant memory, where blocks look one up by number; a copy of
/// them in each thread's own memory would cost more than the segment.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) copy_heads_kernel(const __grid_constant__ Parts a) {
  const int index = part_of_block(a.first_block);
  const Part& part = a.parts[index];
  const std::uint32_t block = blockIdx.x - a.first_block[index];
  if (part.rotated) {
    turn_item<T, N>(a, part, block);
  } else {
    copy_items<T, N>(part, block, a.rows);
  }
}

/// One launch: `rows` rows from `first_row` on of at most kSegments segments.
template <typename T, int N>
void run_part(const CopyHeads& a, std::span<const HeadSegment> segments, std::int64_t first_row,
              std::int64_t rows, Stream stream) {
  Parts parts;
  std::fill_n(parts.first_block, kSegments, std::numeric_limits<std::uint32_t>::max());
  std::int64_t blocks = 0;
  int count = 0;
  for (const HeadSegment& segment : segments) {
    const std::int64_t per_row = segment.columns / N / (segment.rotated ? 2 : 1);
    if (per_row == 0) {
      continue;
    }
    parts.parts[count] = {
        .from = static_cast<const T*>(segment.from) + first_row * segment.from_pitch,
        .to = static_cast<T*>(segment.to) + first_row * segment.to_pitch,
        .from_pitch = segment.from_pitch,
        .to_pitch = segment.to_pitch,
        .per_row = FastDivide(static_cast<std::uint32_t>(per_row)),
        .rotated = segment.rotated};
    parts.first_block[count] = static_cast<std::uint32_t>(blocks);
    blocks += divide_up(rows * per_row, kThreads * (segment.rotated ? 1 : kVectors));
    ++count;
  }
  if (count == 0) {
    return;
  }
  parts.half = a.head_dim / 2;
  if (a.cosine != nullptr) {
    parts.cosine = a.cosine + first_row * parts.half;
    parts.sine = a.sine + first_row * parts.half;
    parts.per_head =
        FastDivide(static_cast<std::uint32_t>(std::max<std::int64_t>(parts.half / N, 1)));
  }
  parts.rows = static_cast<std::uint32_t>(rows);
  parts.inverse = a.inverse;
  launch("copy_heads", copy_heads_kernel<T, N>, dim3(static_cast<unsigned>(blocks)), kThreads,
         stream, parts);
}

template <typename T, int N>
void run(const CopyHeads& a, std::span<const HeadSegment> segments, Stream stream) {
  std::int64_t widest = 1;
  for (const HeadSegment& segment : segments) {
    widest = std::max(widest, segment.columns / N);
  }
  LONGHAUL_ASSERT(widest <= kMaxItems, "a segment has fewer than 2^30 items in a row");
  const std::int64_t limit = rows_per_launch(widest);
  for (std::int64_t first = 0; first < a.rows; first += limit) {
    run_part<T, N>(a, segments, first, std::min(limit, a.rows - first), stream);
  }
}

/// Whether all of the segments may be read and written 16 bytes at a time.
template <typename T>
bool takes_vectors(const CopyHeads& a, std::span<const HeadSegment> segments) {
  const std::int64_t half = a.head_dim / 2;
  const bool angles = half % kPack<T> == 0 &&
                      rows_aligned({{a.cosine, half}, {a.sine, half}}, a.rows, sizeof(float));
  return std::all_of(segments.begin(), segments.end(), [&](const HeadSegment& segment) {
    return segment.columns % kPack<T> == 0 && (angles || !segment.rotated) &&
           rows_aligned({{segment.from, segment.from_pitch}, {segment.to, segment.to_pitch}},
                        a.rows, sizeof(T));
  });
}

}  // namespace

void copy_heads(const CopyHeads& a, Stream stream) {
  const std::span<const HeadSegment> all(a.segments, static_cast<std::size_t>(a.num_segments));
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::size_t first = 0; first < all.size(); first += kSegments) {
      const auto segments =
          all.subspan(first, std::min<std::size_t>(kSegments, all.size() - first));
      if (takes_vectors<T>(a, segments)) {
        run<T, kPack<T>>(a, segments, stream);
      } else {
        run<T, 1>(a, segments, stream);
      }
    }
  });
}

}  // namespace longhaul::kernels::cuda
