#include "kernels/scaled_copies_cases.h"

#include <array>
#include <cmath>
#include <limits>

namespace longhaul::kernels::testing {
namespace {

constexpr std::array<float, 3> kScales = {1.0F, 0.5F, 2.0F / 3.0F};

/// Of every shape up to 6 × 24 with and without gaps, empty ones among them.
std::vector<ScaledSegmentCase> many(std::int64_t count) {
  std::vector<ScaledSegmentCase> segments;
  for (std::int64_t i = 0; i < count; ++i) {
    segments.push_back({.rows = i % 7,
                        .columns = i % 4 * 8 + (i % 5 == 0 ? 1 : 0),
                        .scale = kScales[static_cast<std::size_t>(i) % kScales.size()],
                        .from_gap = i % 2 * 8,
                        .to_gap = i % 3 * 8});
  }
  return segments;
}

/// Adapters of `count` weights: A without a scale, B with one, in rows of slabs with `room`.
std::vector<ScaledSegmentCase> adapters(std::int64_t count, std::int64_t inputs,
                                        std::int64_t outputs, std::int64_t rank,
                                        std::int64_t room) {
  std::vector<ScaledSegmentCase> segments;
  for (std::int64_t i = 0; i < count; ++i) {
    segments.push_back({.rows = rank, .columns = inputs, .to_gap = room});
    segments.push_back({.rows = outputs,
                        .columns = rank,
                        .scale = 2.0F / 3.0F,
                        .to_left = inputs,
                        .to_gap = room - rank});
  }
  return segments;
}

double number(Numbers& numbers, std::int64_t index) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::array<float, 9> kExtremes = {
      0x1.01p0F,   0x1.03p0F,   -0x1.01p0F,           // halfway between two neighbours of bf16
      0x1.FFp127F, 0x1.FEp127F, 0x1.23p-130F, -0.0F,  // infinite in bf16, its largest, subnormal
      kInfinity,   -kInfinity};
  if (index % 5 == 4) {
    return static_cast<double>(kExtremes[static_cast<std::size_t>(index / 5) % kExtremes.size()]);
  }
  return std::ldexp(numbers.next(1), static_cast<int>(index % 61) - 30);
}

Matrix source_of(const ScaledSegmentCase& segment, Numbers& numbers) {
  Matrix source(base::Dtype::kFloat32, segment.rows, segment.from_left + segment.columns,
                segment.from_gap);
  std::int64_t index = 0;
  for (std::int64_t row = 0; row < segment.rows; ++row) {
    for (std::int64_t column = 0; column < segment.columns; ++column) {
      source.set(row, segment.from_left + column, number(numbers, index++));
    }
  }
  return source;
}

}  // namespace

std::vector<ScaledCopiesCase> scaled_copies_cases() {
  const float third = 2.0F / 3.0F;
  return {
      {"no_segment", {}},
      {"nothing", {{0, 8}, {8, 0}, {0, 0, third}}},
      {"one_element", {{1, 1}, {1, 1, 0.5F}, {1, 1, third}}},
      {"odd_sizes", {{3, 5, third}, {1, 7}, {7, 1, 0.5F}, {13, 31, third}}},
      {"odd_pitches",
       {{9, 16, third, 0, 0, 1, 0}, {9, 16, third, 0, 0, 0, 1}, {9, 16, 0.5F, 0, 0, 3, 5}}},
      {"off_a_border",
       {{4, 16, third, 1, 0, 7, 8}, {4, 16, third, 0, 1, 8, 7}, {4, 16, third, 4, 4, 4, 4}}},
      {"aligned", {{16, 64}, {16, 64, 0.5F, 8, 8, 8, 8}, {33, 24, third, 4, 8, 4, 0}}},
      {"one_row", {{1, 4096, third, 0, 0, 1, 1}, {1, 4099, third}}},
      {"many_blocks", {{300, 520, third, 0, 0, 8, 8}, {300, 521, third}, {5000, 8, 0.5F}}},
      {"slabs", adapters(3, 64, 40, 8, 24)},
      {"slabs_of_odd_ranks", adapters(3, 72, 40, 5, 16)},
      {"one_launch", many(64)},
      {"two_launches", std::vector<ScaledSegmentCase>(65, {2, 9, third})},
      {"many_launches", many(392)},
  };
}

ScaledCopiesBench::ScaledCopiesBench(const ScaledCopiesCase& test, base::Dtype dtype)
    : segments_(test.segments), dtype_(dtype) {
  Numbers numbers(31);
  for (const ScaledSegmentCase& segment : segments_) {
    sources_.push_back(source_of(segment, numbers));
    targets_.emplace_back(dtype, segment.rows, segment.to_left + segment.columns, segment.to_gap);
    Matrix expected = targets_.back();
    for (std::int64_t row = 0; row < segment.rows; ++row) {
      for (std::int64_t column = 0; column < segment.columns; ++column) {
        const auto value = static_cast<float>(sources_.back().at(row, segment.from_left + column));
        const float product = value * segment.scale;
        expected.set(row, segment.to_left + column, static_cast<double>(product));
      }
    }
    expected_.push_back(expected);
  }
}

ScaledSegment ScaledCopiesBench::segment_at(std::size_t i, const void* from, void* to) const {
  const ScaledSegmentCase& segment = segments_[i];
  // No row has no address that could be moved.
  const std::int64_t left = segment.rows == 0 ? 0 : 1;
  return {.from = static_cast<const float*>(from) + left * segment.from_left,
          .from_pitch = sources_[i].pitch(),
          .to = static_cast<std::uint8_t*>(to) +
                left * segment.to_left * static_cast<std::int64_t>(base::dtype_bytes(dtype_)),
          .to_pitch = targets_[i].pitch(),
          .rows = segment.rows,
          .columns = segment.columns,
          .scale = segment.scale};
}

}  // namespace longhaul::kernels::testing
