// What the kernel tests share: matrices of either element type with a row pitch and guarded
// padding, the kernel tables of every instruction set that this processor runs, and the tolerance.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/kernel_table.h"

namespace longhaul::kernels::testing {

/// A table built for one instruction set.
struct NamedTable {
  std::string name;
  KernelTable table;
  friend void PrintTo(const NamedTable& named, std::ostream* out) { *out << named.name; }
};

/// Every table that this processor can run, the baseline first.
std::vector<NamedTable> runnable_tables();

/// Deterministic numbers in [-scale, scale).
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  double next(double scale);

 private:
  std::uint64_t state_;
};

/// rows × width values of `dtype` in rows of `pitch` elements; what lies between the rows is
/// guarded.
class Matrix {
 public:
  Matrix(base::Dtype dtype, std::int64_t rows, std::int64_t width, std::int64_t gap = 3);
  /// Filled with numbers in [-scale, scale), rounded to the element type.
  Matrix(base::Dtype dtype, std::int64_t rows, std::int64_t width, Numbers& numbers,
         double scale = 1, std::int64_t gap = 3);

  [[nodiscard]] double at(std::int64_t row, std::int64_t column) const;
  void set(std::int64_t row, std::int64_t column, double value);
  [[nodiscard]] void* data() { return bytes_.data(); }
  [[nodiscard]] const void* data() const { return bytes_.data(); }
  /// Address of one element.
  [[nodiscard]] void* element(std::int64_t row, std::int64_t column);
  [[nodiscard]] std::int64_t pitch() const { return pitch_; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t width() const { return width_; }
  /// Nothing between the rows has been written.
  [[nodiscard]] bool padding_is_intact() const;
  bool operator==(const Matrix&) const = default;

 private:
  [[nodiscard]] std::size_t offset(std::int64_t row, std::int64_t column) const;

  base::Dtype dtype_;
  std::int64_t rows_;
  std::int64_t width_;
  std::int64_t pitch_;
  std::vector<std::uint8_t> bytes_;
};

/// Empty when every element is near `expected`: float32 within `limit` of the larger of the value
/// and `scale`; bfloat16 within twice the error of rounding the expected value, plus the same.
std::string difference(
    const Matrix& got, base::Dtype dtype, double limit, double scale,
    const std::function<double(std::int64_t row, std::int64_t column)>& expected);

/// Runs `action` with a number of OpenMP threads and puts the former number back.
void with_threads(int threads, const std::function<void()>& action);

}  // namespace longhaul::kernels::testing
