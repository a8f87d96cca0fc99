// RMSNorm of the CUDA table against the CPU table and the plain formulas in double.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cuda_cases.h"
#include "kernels/cuda_table.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using testing::DeviceArray;
using testing::DeviceMatrix;
using testing::Matrix;
using testing::Numbers;

constexpr double kFp32Limit = 4e-6;
constexpr double kEps = 1e-5;

class CudaNorm : public ::testing::TestWithParam<Dtype> {};

INSTANTIATE_TEST_SUITE_P(Types, CudaNorm, ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16),
                         [](const auto& test) {
                           return test.param == Dtype::kFloat32 ? "fp32" : "bf16";
                         });

struct NormShape {
  std::int64_t rows;
  std::int64_t groups;
  std::int64_t width;
};

/// Every team shape with whole and partial vectors; 18944 is wider than the largest team, and the
/// tall ones give teams several groups each.
std::vector<NormShape> norm_shapes() {
  std::vector<NormShape> shapes = {{0, 1, 5},      {1000, 1, 1},   {1000, 1, 7},  {1000, 1, 64},
                                   {1000, 1, 576}, {300, 1, 3584}, {40000, 1, 8}, {5000, 1, 64},
                                   {3, 1, 6000},   {3, 1, 8192},   {2, 3, 8200},  {1, 4, 64},
                                   {3, 28, 128},   {37, 9, 64},    {5, 3, 17},    {2, 2, 20000}};
  for (const std::int64_t rows : {1, 3}) {
    for (const std::int64_t width : {1, 7, 64, 576, 3584, 18944}) {
      shapes.push_back({rows, 1, width});
    }
  }
  return shapes;
}

double plain_rstd(const Matrix& x, std::int64_t row, std::int64_t first, std::int64_t width) {
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    sum += x.at(row, first + i) * x.at(row, first + i);
  }
  return 1.0 / std::sqrt(sum / static_cast<double>(width) + kEps);
}

/// rstd of every group in double.
std::vector<double> plain_rstds(const Matrix& x, const NormShape& s) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < s.rows * s.groups; ++i) {
    result.push_back(plain_rstd(x, i / s.groups, i % s.groups * s.width, s.width));
  }
  return result;
}

struct ForwardResult {
  Matrix y;
  std::vector<float> rstd;
};

RmsNormForward forward_call(Dtype dtype, const NormShape& s, std::int64_t x_pitch,
                            std::int64_t y_pitch) {
  return {.dtype = dtype,
          .x_pitch = x_pitch,
          .y_pitch = y_pitch,
          .rows = s.rows,
          .groups = s.groups,
          .width = s.width,
          .eps = static_cast<float>(kEps)};
}

ForwardResult cuda_forward(Dtype dtype, const NormShape& s, const Matrix& x, const Matrix& weight,
                           std::int64_t gap, std::size_t shift = 0) {
  const DeviceMatrix dx(x, dtype, shift);
  const DeviceMatrix dw(weight, dtype);
  const DeviceMatrix dy(Matrix(dtype, s.rows, s.groups * s.width, gap), dtype, shift);
  const DeviceArray<float> rstd(std::vector<float>(static_cast<std::size_t>(s.rows * s.groups)));
  RmsNormForward call = forward_call(dtype, s, dx.pitch(), dy.pitch());
  call.x = dx.data();
  call.weight = dw.data();
  call.y = dy.data();
  call.rstd = rstd.data();
  cuda_kernels().rms_norm_forward(call, nullptr);
  return {dy.read(), rstd.read()};
}

TEST_P(CudaNorm, ForwardEqualsTheFormulaAndTheCpu) {
  for (const NormShape& s : norm_shapes()) {
    for (const std::int64_t gap : {0, 1, 8}) {
      Numbers numbers(1);
      const Matrix x(GetParam(), s.rows, s.groups * s.width, numbers, 2, gap);
      const Matrix weight(GetParam(), 1, s.width, numbers, 1.5, 0);
      const ForwardResult got = cuda_forward(GetParam(), s, x, weight, gap);
      Matrix cpu(GetParam(), s.rows, x.width(), gap);
      std::vector<float> cpu_rstd(got.rstd.size());
      RmsNormForward call = forward_call(GetParam(), s, x.pitch(), cpu.pitch());
      call.x = x.data();
      call.weight = weight.data();
      call.y = cpu.data();
      call.rstd = cpu_rstd.data();
      cpu_kernels().rms_norm_forward(call, nullptr);
      const std::vector<double> rstd = plain_rstds(x, s);
      for (std::size_t i = 0; i < rstd.size(); ++i) {
        ASSERT_NEAR(got.rstd[i], rstd[i], 1e-6 * rstd[i]) << s.width;
      }
      const auto expected = [&](std::int64_t row, std::int64_t column) {
        const auto group = static_cast<std::size_t>(row * s.groups + column / s.width);
        return x.at(row, column) * rstd[group] * weight.at(0, column % s.width);
      };
      ASSERT_EQ(compare(got.y, cpu, GetParam(), kFp32Limit, 0.1, expected), "")
          << s.rows << " x " << s.groups << " x " << s.width << ", gap " << gap;
    }
  }
}

TEST_P(CudaNorm, ForwardHasTheSameBitsHoweverItsRowsLie) {
  for (const NormShape& s : {NormShape{5, 1, 576}, {5, 1, 3584}, {3, 1, 18944}, {7, 4, 64}}) {
    Numbers numbers(2);
    const Matrix x(GetParam(), s.rows, s.groups * s.width, numbers, 2, 0);
    Matrix wide(GetParam(), s.rows, x.width(), 1);
    for (std::int64_t row = 0; row < s.rows; ++row) {
      for (std::int64_t column = 0; column < x.width(); ++column) {
        wide.set(row, column, x.at(row, column));
      }
    }
    const Matrix weight(GetParam(), 1, s.width, numbers, 1.5, 0);
    const ForwardResult vectors = cuda_forward(GetParam(), s, x, weight, 0);
    const ForwardResult pitched = cuda_forward(GetParam(), s, wide, weight, 0);
    const ForwardResult shifted = cuda_forward(GetParam(), s, x, weight, 0, 1);
    EXPECT_EQ(vectors.rstd, pitched.rstd);
    EXPECT_EQ(vectors.rstd, shifted.rstd);
    EXPECT_EQ(vectors.y, pitched.y);
    EXPECT_EQ(vectors.y, shifted.y);
  }
}

TEST_P(CudaNorm, ForwardWorksInPlaceAndWithoutOutput) {
  const NormShape s{5, 3, 72};
  Numbers numbers(3);
  const Matrix x(GetParam(), s.rows, s.groups * s.width, numbers, 2, 0);
  const Matrix weight(GetParam(), 1, s.width, numbers, 1.5, 0);
  const ForwardResult want = cuda_forward(GetParam(), s, x, weight, 0);
  const DeviceMatrix in_place(x, GetParam());
  const DeviceMatrix dw(weight, GetParam());
  const DeviceArray<float> rstd(std::vector<float>(15));
  RmsNormForward call = forward_call(GetParam(), s, x.pitch(), 0);
  call.x = in_place.data();
  call.weight = dw.data();
  call.rstd = rstd.data();
  cuda_kernels().rms_norm_forward(call, nullptr);
  EXPECT_EQ(rstd.read(), want.rstd);
  EXPECT_EQ(in_place.read(), x);
  call.y = in_place.data();
  call.y_pitch = x.pitch();
  cuda_kernels().rms_norm_forward(call, nullptr);
  EXPECT_EQ(in_place.read(), want.y);
}

enum class Target { kApart, kOverDy, kOverAdd };

/// Arguments of one backward call on the host.
struct Backward {
  Backward(Dtype type, const NormShape& shape, std::int64_t gap, std::uint64_t seed)
      : dtype(type),
        s(shape),
        numbers(seed),
        x(type, s.rows, s.groups * s.width, numbers, 2, gap),
        weight(type, 1, s.width, numbers, 1.5, 0),
        dy(type, s.rows, x.width(), numbers, 1, gap),
        add(type, s.rows, x.width(), numbers, 1, gap),
        dx(type, s.rows, x.width(), gap),
        plain(plain_rstds(x, s)),
        rstd(plain.begin(), plain.end()),
        dweight(static_cast<std::size_t>(s.width), 0.25F) {}

  [[nodiscard]] RmsNormBackward call() const {
    return {.dtype = dtype,
            .x_pitch = x.pitch(),
            .dy_pitch = dy.pitch(),
            .add_pitch = add.pitch(),
            .dx_pitch = dx.pitch(),
            .rows = s.rows,
            .groups = s.groups,
            .width = s.width};
  }
  /// The CPU's results in dx and dweight.
  void run_cpu(bool with_add) {
    RmsNormBackward args = call();
    args.x = x.data();
    args.weight = weight.data();
    args.rstd = rstd.data();
    args.dy = dy.data();
    args.add = with_add ? add.data() : nullptr;
    args.dx = dx.data();
    args.dweight = dweight.data();
    cpu_kernels().rms_norm_backward(args, nullptr);
  }
  struct Result {
    Matrix dx;
    std::vector<float> dweight;
  };
  [[nodiscard]] Result run_cuda(bool with_add, Target target = Target::kApart,
                                bool with_weight = true) const {
    const DeviceMatrix device_x(x, dtype);
    const DeviceMatrix device_weight(weight, dtype);
    const DeviceMatrix device_dy(dy, dtype);
    const DeviceMatrix device_add(add, dtype);
    const DeviceMatrix device_dx(dx, dtype);
    const DeviceArray<float> device_rstd(rstd);
    const DeviceArray<float> device_dweight(
        std::vector<float>(static_cast<std::size_t>(s.width), 0.25F));
    const DeviceMatrix& result = target == Target::kOverDy    ? device_dy
                                 : target == Target::kOverAdd ? device_add
                                                              : device_dx;
    RmsNormBackward args = call();
    args.x = device_x.data();
    args.weight = device_weight.data();
    args.rstd = device_rstd.data();
    args.dy = device_dy.data();
    args.add = with_add ? device_add.data() : nullptr;
    args.dx = result.data();
    args.dweight = with_weight ? device_dweight.data() : nullptr;
    cuda_kernels().rms_norm_backward(args, nullptr);
    return {result.read(), device_dweight.read()};
  }
  /// Σ over the group of dy · weight · x.
  [[nodiscard]] double dot(std::int64_t row, std::int64_t group) const {
    double sum = 0;
    for (std::int64_t i = 0; i < s.width; ++i) {
      const std::int64_t at = group * s.width + i;
      sum += dy.at(row, at) * weight.at(0, i) * x.at(row, at);
    }
    return sum;
  }

  Dtype dtype;
  NormShape s;
  Numbers numbers;
  Matrix x;
  Matrix weight;
  Matrix dy;
  Matrix add;
  Matrix dx;
  std::vector<double> plain;
  std::vector<float> rstd;
  std::vector<float> dweight;
};

/// Mismatch of dweight with the plain sum, as text.
void expect_weight_gradient(const Backward& test, const std::vector<float>& got) {
  for (std::int64_t i = 0; i < test.s.width; ++i) {
    double want = 0.25;
    double size = 1;
    for (std::int64_t group = 0; group < test.s.rows * test.s.groups; ++group) {
      const std::int64_t row = group / test.s.groups;
      const std::int64_t at = group % test.s.groups * test.s.width + i;
      const double term =
          test.dy.at(row, at) * test.x.at(row, at) * test.plain[static_cast<std::size_t>(group)];
      want += term;
      size += std::abs(term);
    }
    const auto at = static_cast<std::size_t>(i);
    ASSERT_NEAR(got[at], want, 1e-6 * size) << test.s.width;
    ASSERT_NEAR(got[at], test.dweight[at], 2e-6 * size) << test.s.width;
  }
}

TEST_P(CudaNorm, BackwardEqualsTheDerivativeAndTheCpu) {
  for (const NormShape& s : norm_shapes()) {
    for (const std::int64_t gap : {0, 1}) {
      const bool with_add = gap == 0;
      Backward test(GetParam(), s, gap, 4);
      const Backward::Result got = test.run_cuda(with_add);
      test.run_cpu(with_add);
      std::vector<double> dots;
      for (std::int64_t i = 0; i < s.rows * s.groups; ++i) {
        dots.push_back(test.dot(i / s.groups, i % s.groups));
      }
      const auto expected = [&](std::int64_t row, std::int64_t column) {
        const auto group = static_cast<std::size_t>(row * s.groups + column / s.width);
        const double r = test.plain[group];
        return r * test.weight.at(0, column % s.width) * test.dy.at(row, column) -
               r * r * r * test.x.at(row, column) / static_cast<double>(s.width) * dots[group] +
               (with_add ? test.add.at(row, column) : 0.0);
      };
      ASSERT_EQ(compare(got.dx, test.dx, GetParam(), kFp32Limit, 4, expected), "")
          << s.rows << " x " << s.groups << " x " << s.width << ", gap " << gap;
      expect_weight_gradient(test, got.dweight);
    }
  }
}

TEST_P(CudaNorm, BackwardMayWriteOverItsGradientOrItsAddendAndLeaveOutTheWeight) {
  for (const NormShape& s : {NormShape{6, 2, 24}, {6, 2, 19}, {70, 1, 3584}, {3, 1, 18944}}) {
    const Backward test(GetParam(), s, 0, 5);
    const Backward::Result apart = test.run_cuda(true);
    const Backward::Result over_dy = test.run_cuda(true, Target::kOverDy);
    const Backward::Result over_add = test.run_cuda(true, Target::kOverAdd);
    EXPECT_EQ(over_dy.dx, apart.dx);
    EXPECT_EQ(over_add.dx, apart.dx);
    EXPECT_EQ(over_dy.dweight, apart.dweight);
    EXPECT_EQ(over_add.dweight, apart.dweight);
    const Backward::Result alone = test.run_cuda(true, Target::kApart, false);
    EXPECT_EQ(alone.dx, apart.dx);
    EXPECT_EQ(alone.dweight, std::vector<float>(static_cast<std::size_t>(s.width), 0.25F));
  }
}

TEST_P(CudaNorm, BackwardGivesTheSameBitsEveryTime) {
  for (const NormShape& s : {NormShape{3000, 1, 576}, {700, 4, 64}, {50, 1, 18944}}) {
    const Backward test(GetParam(), s, 0, 6);
    const Backward::Result first = test.run_cuda(true);
    for (int run = 0; run < 20; ++run) {
      const Backward::Result again = test.run_cuda(true);
      ASSERT_EQ(again.dx, first.dx);
      ASSERT_EQ(again.dweight, first.dweight);
    }
  }
}

}  // namespace
}  // namespace longhaul::kernels
