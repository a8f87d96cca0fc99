// The cases of the kernel that copies and turns heads, for the tables of every device: its
// arguments, and what a plain copy makes of them, which Rope then turns to what is expected.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/kernel_cases.h"

namespace longhaul::kernels::testing {

struct HeadSegmentCase {
  std::int64_t columns = 0;
  bool rotated = false;
  std::int64_t left = 0;  // columns before it, at both ends
  std::int64_t gap = 0;   // between the rows of its target
};

struct CopyHeadsCase {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t head_dim = 0;
  std::vector<HeadSegmentCase> segments;
  std::int64_t source_gap = 0;
  friend void PrintTo(const CopyHeadsCase& test, std::ostream* out) { *out << test.name; }
};

/// Odd widths and pitches, no row, one row, no column, no rotation, starts off every border, more
/// segments than one launch takes, and what ranks of a large model exchange.
std::vector<CopyHeadsCase> copy_heads_cases();

/// All segments lie side by side in one source; each has a target of its own, guarded and with zeros
/// to the left.
class CopyHeadsBench {
 public:
  CopyHeadsBench(const CopyHeadsCase& test, base::Dtype dtype);

  [[nodiscard]] std::size_t size() const { return test_.segments.size(); }
  [[nodiscard]] const HeadSegmentCase& segment(std::size_t i) const { return test_.segments[i]; }
  [[nodiscard]] const Matrix& source() const { return source_; }
  /// Before the call.
  [[nodiscard]] const Matrix& target(std::size_t i) const { return targets_[i]; }
  /// After a plain copy.
  [[nodiscard]] const Matrix& copied(std::size_t i) const { return copied_[i]; }
  [[nodiscard]] const std::vector<float>& cosine() const { return cosine_; }
  [[nodiscard]] const std::vector<float>& sine() const { return sine_; }

  /// Segment `i` from the source at `from` to its target at `to`.
  [[nodiscard]] HeadSegment segment_at(std::size_t i, const void* from, void* to) const;
  /// The call but for its segments.
  [[nodiscard]] CopyHeads call(const float* cosine, const float* sine, bool inverse) const;
  /// Turns segment `i`, which stands in the matrix at `target` with target's pitch, in place.
  [[nodiscard]] Rope rope(std::size_t i, void* target, const float* cosine, const float* sine,
                          bool inverse) const;

 private:
  [[nodiscard]] std::int64_t bytes(std::int64_t elements) const;

  CopyHeadsCase test_;
  base::Dtype dtype_;
  Matrix source_;
  std::vector<std::int64_t> first_columns_;  // of the segments in the source
  std::vector<Matrix> targets_;
  std::vector<Matrix> copied_;
  std::vector<float> cosine_;
  std::vector<float> sine_;
};

}  // namespace longhaul::kernels::testing
