#include "kernels/copy_heads_cases.h"

#include <cmath>

namespace longhaul::kernels::testing {
namespace {

std::int64_t source_width(const CopyHeadsCase& test) {
  std::int64_t width = 0;
  for (const HeadSegmentCase& segment : test.segments) {
    width += segment.left + segment.columns;
  }
  return width;
}

Matrix random_source(const CopyHeadsCase& test, base::Dtype dtype) {
  Numbers numbers(21);
  return {dtype, test.rows, source_width(test), numbers, 1, test.source_gap};
}

/// q, k and v of `ranks` ranks that have `num_q` and `num_kv` heads each.
std::vector<HeadSegmentCase> of_ranks(std::int64_t ranks, std::int64_t num_q, std::int64_t num_kv,
                                      std::int64_t head_dim) {
  std::vector<HeadSegmentCase> segments;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    segments.push_back({.columns = num_q * head_dim, .rotated = true});
    segments.push_back({.columns = num_kv * head_dim, .rotated = true});
    segments.push_back({.columns = num_kv * head_dim});
  }
  return segments;
}

/// Turned, copied and empty segments in turns, every one with a pitch of its own.
std::vector<HeadSegmentCase> many(std::int64_t count, std::int64_t head_dim) {
  std::vector<HeadSegmentCase> segments;
  for (std::int64_t i = 0; i < count; ++i) {
    segments.push_back(
        {.columns = i % 7 * head_dim, .rotated = i % 3 != 0, .left = 0, .gap = i % 4 * 8});
  }
  return segments;
}

}  // namespace

std::vector<CopyHeadsCase> copy_heads_cases() {
  return {
      {"no_row", 0, 64, of_ranks(2, 3, 1, 64)},
      {"one_row", 1, 64, of_ranks(2, 3, 1, 64)},
      {"one_pair", 1, 2, {{.columns = 2, .rotated = true}}},
      {"no_segment", 3, 8, {}},
      {"no_column", 3, 8, {{}, {.columns = 0, .rotated = true}}},
      {"copies_alone", 37, 0, {{.columns = 1}, {.columns = 7, .gap = 3}, {.columns = 64}}},
      {"aligned_copies", 37, 0, {{.columns = 64}, {.columns = 8, .gap = 8}, {.columns = 256}}},
      {"odd_heads", 5, 6, {{.columns = 18, .rotated = true}, {.columns = 6}}, 1},
      {"odd_pitches",
       9,
       64,
       {{.columns = 128, .rotated = true, .left = 0, .gap = 1}, {.columns = 64, .gap = 3}},
       5},
      {"off_every_border",
       33,
       128,
       {{.columns = 256, .rotated = true, .left = 1}, {.columns = 128, .left = 3}}},
      // The second one's start alone is off a border.
      {"one_off_its_border",
       33,
       64,
       {{.columns = 128, .rotated = true}, {.columns = 64, .rotated = true, .left = 2}}},
      {"half_a_vector", 11, 8, {{.columns = 16, .rotated = true}, {.columns = 8}}},
      {"pairs_beside_vectors", 4, 34, {{.columns = 68, .rotated = true}, {.columns = 34}}},
      {"many", 13, 16, many(70, 16)},
      {"many_odd", 13, 6, many(70, 6), 3},
      {"ranks", 300, 128, of_ranks(4, 7, 1, 128), 8},
      {"eight_ranks", 1000, 64, of_ranks(8, 2, 1, 64)},
  };
}

CopyHeadsBench::CopyHeadsBench(const CopyHeadsCase& test, base::Dtype dtype)
    : test_(test), dtype_(dtype), source_(random_source(test, dtype)) {
  std::int64_t first = 0;
  for (const HeadSegmentCase& segment : test_.segments) {
    first += segment.left;
    first_columns_.push_back(first);
    targets_.emplace_back(dtype, test_.rows, segment.left + segment.columns, segment.gap);
    Matrix copied = targets_.back();
    for (std::int64_t row = 0; row < test_.rows; ++row) {
      for (std::int64_t column = 0; column < segment.columns; ++column) {
        copied.set(row, segment.left + column, source_.at(row, first + column));
      }
    }
    copied_.push_back(copied);
    first += segment.columns;
  }
  Numbers numbers(22);
  for (std::int64_t i = 0; i < test_.rows * test_.head_dim / 2; ++i) {
    const double angle = numbers.next(3);
    cosine_.push_back(static_cast<float>(std::cos(angle)));
    sine_.push_back(static_cast<float>(std::sin(angle)));
  }
}

std::int64_t CopyHeadsBench::bytes(std::int64_t elements) const {
  // No row has no address that could be moved.
  return test_.rows == 0 ? 0 : elements * static_cast<std::int64_t>(base::dtype_bytes(dtype_));
}

HeadSegment CopyHeadsBench::segment_at(std::size_t i, const void* from, void* to) const {
  return {.from = static_cast<const std::uint8_t*>(from) + bytes(first_columns_[i]),
          .from_pitch = source_.pitch(),
          .to = static_cast<std::uint8_t*>(to) + bytes(segment(i).left),
          .to_pitch = targets_[i].pitch(),
          .columns = segment(i).columns,
          .rotated = segment(i).rotated};
}

CopyHeads CopyHeadsBench::call(const float* cosine, const float* sine, bool inverse) const {
  return {.dtype = dtype_,
          .cosine = cosine,
          .sine = sine,
          .rows = test_.rows,
          .head_dim = test_.head_dim,
          .inverse = inverse};
}

Rope CopyHeadsBench::rope(std::size_t i, void* target, const float* cosine, const float* sine,
                          bool inverse) const {
  return {.dtype = dtype_,
          .x = static_cast<std::uint8_t*>(target) + bytes(segment(i).left),
          .pitch = targets_[i].pitch(),
          .cosine = cosine,
          .sine = sine,
          .rows = test_.rows,
          .heads = segment(i).columns / test_.head_dim,
          .head_dim = test_.head_dim,
          .inverse = inverse};
}

}  // namespace longhaul::kernels::testing
