// The cases of the kernel that scales matrices into another type, for the tables of every device:
// its arguments, and what the plain formula makes of them.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/kernel_cases.h"

namespace longhaul::kernels::testing {

struct ScaledSegmentCase {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float scale = 1;
  std::int64_t from_left = 0;  // columns before the segment
  std::int64_t to_left = 0;
  std::int64_t from_gap = 0;  // between the rows
  std::int64_t to_gap = 0;
};

struct ScaledCopiesCase {
  std::string name;
  std::vector<ScaledSegmentCase> segments;
  friend void PrintTo(const ScaledCopiesCase& test, std::ostream* out) { *out << test.name; }
};

/// Nothing to do, odd sizes and pitches, starts off every border, adapters in slabs, segments of many
/// blocks, and as many as one, two and several launches take.
std::vector<ScaledCopiesCase> scaled_copies_cases();

/// Each segment has a source and a target of its own, both guarded. Sources hold, beside numbers of
/// all magnitudes, ties between neighbours of bfloat16, infinities and what becomes infinite or
/// subnormal.
class ScaledCopiesBench {
 public:
  ScaledCopiesBench(const ScaledCopiesCase& test, base::Dtype dtype);

  [[nodiscard]] std::size_t size() const { return segments_.size(); }
  [[nodiscard]] const Matrix& source(std::size_t i) const { return sources_[i]; }
  /// Before the call.
  [[nodiscard]] const Matrix& target(std::size_t i) const { return targets_[i]; }
  /// After it.
  [[nodiscard]] const Matrix& expected(std::size_t i) const { return expected_[i]; }

  /// Segment `i` from its source at `from` to its target at `to`.
  [[nodiscard]] ScaledSegment segment_at(std::size_t i, const void* from, void* to) const;

 private:
  std::vector<ScaledSegmentCase> segments_;
  base::Dtype dtype_;
  std::vector<Matrix> sources_;
  std::vector<Matrix> targets_;
  std::vector<Matrix> expected_;
};

}  // namespace longhaul::kernels::testing
