#include "kernels/kernel_cases.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>

namespace longhaul::kernels {

// The builds that cpu_table.cpp chooses from; declared here so that a test reaches each of them.
namespace isa_base {
KernelTable make_table();
}
#if defined(__x86_64__)
namespace isa_v3 {
KernelTable make_table();
}
namespace isa_v4 {
KernelTable make_table();
}
#endif

namespace testing {

std::vector<NamedTable> runnable_tables() {
  std::vector<NamedTable> tables = {{"base", isa_base::make_table()}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    tables.push_back({"v3", isa_v3::make_table()});
    if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
        __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512bw") != 0) {
      tables.push_back({"v4", isa_v4::make_table()});
    }
  }
#endif
  return tables;
}

double Numbers::next(double scale) {
  state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
  const auto word = static_cast<double>((state_ >> 33) & 0x7FFFFFFFU);
  return (word / 0x1.0p30 - 1.0) * scale;
}

namespace {
constexpr std::uint8_t kGuard = 0xA5;
}

Matrix::Matrix(base::Dtype dtype, std::int64_t rows, std::int64_t width, std::int64_t gap)
    : dtype_(dtype), rows_(rows), width_(width), pitch_(width + gap) {
  bytes_.assign(static_cast<std::size_t>(rows * pitch_) * base::dtype_bytes(dtype), kGuard);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < width; ++column) {
      set(row, column, 0);
    }
  }
}

Matrix::Matrix(base::Dtype dtype, std::int64_t rows, std::int64_t width, Numbers& numbers,
               double scale, std::int64_t gap)
    : Matrix(dtype, rows, width, gap) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < width; ++column) {
      set(row, column, numbers.next(scale));
    }
  }
}

std::size_t Matrix::offset(std::int64_t row, std::int64_t column) const {
  return static_cast<std::size_t>(row * pitch_ + column) * base::dtype_bytes(dtype_);
}

double Matrix::at(std::int64_t row, std::int64_t column) const {
  const std::uint8_t* place = bytes_.data() + offset(row, column);
  if (dtype_ == base::Dtype::kBFloat16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, place, sizeof(bits));
    return static_cast<double>(base::bf16_to_float(bits));
  }
  float value = 0;
  std::memcpy(&value, place, sizeof(value));
  return static_cast<double>(value);
}

void Matrix::set(std::int64_t row, std::int64_t column, double value) {
  std::uint8_t* place = bytes_.data() + offset(row, column);
  if (dtype_ == base::Dtype::kBFloat16) {
    const std::uint16_t bits = base::float_to_bf16(static_cast<float>(value));
    std::memcpy(place, &bits, sizeof(bits));
    return;
  }
  const auto single = static_cast<float>(value);
  std::memcpy(place, &single, sizeof(single));
}

void* Matrix::element(std::int64_t row, std::int64_t column) {
  return bytes_.data() + offset(row, column);
}

bool Matrix::padding_is_intact() const {
  for (std::int64_t row = 0; row < rows_; ++row) {
    const std::size_t begin = offset(row, width_);
    const std::size_t end = offset(row + 1, 0);
    for (std::size_t i = begin; i < end; ++i) {
      if (bytes_[i] != kGuard) {
        return false;
      }
    }
  }
  return true;
}

std::string difference(
    const Matrix& got, base::Dtype dtype, double limit, double scale,
    const std::function<double(std::int64_t row, std::int64_t column)>& expected) {
  for (std::int64_t row = 0; row < got.rows(); ++row) {
    for (std::int64_t column = 0; column < got.width(); ++column) {
      const double want = expected(row, column);
      double allowed = limit * std::max(std::abs(want), scale);
      if (dtype == base::Dtype::kBFloat16) {
        allowed += 2 * 0x1.0p-9 * std::abs(want);  // half a unit in the last of 8 bits, twice
      }
      if (!(std::abs(got.at(row, column) - want) <= allowed)) {
        return fmt::format("[{}, {}] is {}, expected {}", row, column, got.at(row, column), want);
      }
    }
  }
  return got.padding_is_intact() ? "" : "the padding between rows was written";
}

void with_threads(int threads, const std::function<void()>& action) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  action();
  omp_set_num_threads(before);
}

}  // namespace testing
}  // namespace longhaul::kernels
