// The row-wise kernels of a layer (RMSNorm, rotary embedding, SwiGLU) against the plain formulas in
// double, for every instruction set that this processor runs and both element types.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "kernels/kernel_cases.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using testing::Matrix;
using testing::NamedTable;
using testing::Numbers;

constexpr double kFp32Limit = 3e-6;

class Kernels : public ::testing::TestWithParam<std::tuple<NamedTable, Dtype>> {
 protected:
  [[nodiscard]] const KernelTable& table() const { return std::get<0>(GetParam()).table; }
  [[nodiscard]] Dtype dtype() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Tables, Kernels,
                         ::testing::Combine(::testing::ValuesIn(testing::runnable_tables()),
                                            ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  (std::get<1>(test.param) == Dtype::kFloat32 ? "_fp32" : "_bf16");
                         });

/// Shapes of the norms: odd widths, one column, several groups, no row, more rows than reduction
/// blocks.
struct NormShape {
  std::int64_t rows;
  std::int64_t groups;
  std::int64_t width;
};
const NormShape kNormShapes[] = {{0, 1, 5},  {1, 1, 1},  {3, 1, 7},  {2, 3, 17},
                                 {33, 2, 4}, {5, 1, 64}, {4, 9, 64}, {3, 1, 257}};

constexpr double kEps = 1e-5;

double plain_rstd(const Matrix& x, std::int64_t row, std::int64_t first, std::int64_t width) {
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    sum += x.at(row, first + i) * x.at(row, first + i);
  }
  return 1.0 / std::sqrt(sum / static_cast<double>(width) + kEps);
}

RmsNormForward norm_call(const Matrix& x, const Matrix& weight, Matrix* y, float* rstd,
                         const NormShape& shape, Dtype dtype) {
  return {.dtype = dtype,
          .x = x.data(),
          .x_pitch = x.pitch(),
          .weight = weight.data(),
          .y = y == nullptr ? nullptr : y->data(),
          .y_pitch = y == nullptr ? 0 : y->pitch(),
          .rstd = rstd,
          .rows = shape.rows,
          .groups = shape.groups,
          .width = shape.width,
          .eps = static_cast<float>(kEps)};
}

TEST_P(Kernels, NormEqualsThePlainFormulaPerGroup) {
  for (const NormShape& shape : kNormShapes) {
    Numbers numbers(1);
    const Matrix x(dtype(), shape.rows, shape.groups * shape.width, numbers, 2);
    const Matrix weight(dtype(), 1, shape.width, numbers, 1.5, 0);
    Matrix y(dtype(), shape.rows, x.width(), 5);
    std::vector<float> rstd(static_cast<std::size_t>(shape.rows * shape.groups), -1.0F);
    table().rms_norm_forward(norm_call(x, weight, &y, rstd.data(), shape, dtype()), nullptr);
    const auto expected = [&](std::int64_t row, std::int64_t column) {
      const std::int64_t first = column / shape.width * shape.width;
      return x.at(row, column) * plain_rstd(x, row, first, shape.width) *
             weight.at(0, column - first);
    };
    EXPECT_EQ(difference(y, dtype(), kFp32Limit, 0.1, expected), "") << shape.width;
    for (std::int64_t i = 0; i < shape.rows * shape.groups; ++i) {
      const double want =
          plain_rstd(x, i / shape.groups, i % shape.groups * shape.width, shape.width);
      EXPECT_NEAR(rstd[static_cast<std::size_t>(i)], want, 1e-6 * want);
    }
  }
}

TEST_P(Kernels, NormWithoutOutputGivesTheSameRstdAndInPlaceTheSameOutput) {
  const NormShape shape{5, 3, 17};
  Numbers numbers(2);
  Matrix x(dtype(), shape.rows, shape.groups * shape.width, numbers);
  const Matrix weight(dtype(), 1, shape.width, numbers, 1, 0);
  Matrix y(dtype(), shape.rows, x.width());
  std::vector<float> rstd(15);
  std::vector<float> alone(15);
  table().rms_norm_forward(norm_call(x, weight, &y, rstd.data(), shape, dtype()), nullptr);
  table().rms_norm_forward(norm_call(x, weight, nullptr, alone.data(), shape, dtype()), nullptr);
  EXPECT_EQ(alone, rstd);
  RmsNormForward in_place = norm_call(x, weight, &x, alone.data(), shape, dtype());
  table().rms_norm_forward(in_place, nullptr);
  EXPECT_EQ(x, y);
}

/// Everything of one backward call, on the heap of the test.
struct NormBackward {
  NormBackward(Dtype type, const NormShape& s, std::uint64_t seed)
      : dtype(type),
        shape(s),
        numbers(seed),
        x(type, s.rows, s.groups * s.width, numbers, 2),
        weight(type, 1, s.width, numbers, 1.5, 0),
        dy(type, s.rows, x.width(), numbers, 1, 1),
        add(type, s.rows, x.width(), numbers, 1, 4),
        dx(type, s.rows, x.width(), 2) {
    for (std::int64_t i = 0; i < s.rows * s.groups; ++i) {
      rstd.push_back(
          static_cast<float>(plain_rstd(x, i / s.groups, i % s.groups * s.width, s.width)));
    }
    dweight.assign(static_cast<std::size_t>(s.width), 0.25F);
  }

  [[nodiscard]] RmsNormBackward call(bool with_add, Matrix& result) {
    return {.dtype = dtype,
            .x = x.data(),
            .x_pitch = x.pitch(),
            .weight = weight.data(),
            .rstd = rstd.data(),
            .dy = dy.data(),
            .dy_pitch = dy.pitch(),
            .add = with_add ? add.data() : nullptr,
            .add_pitch = with_add ? add.pitch() : 0,
            .dx = result.data(),
            .dx_pitch = result.pitch(),
            .dweight = dweight.data(),
            .rows = shape.rows,
            .groups = shape.groups,
            .width = shape.width};
  }

  /// Σᵢ dyᵢ · ∂yᵢ/∂xⱼ with y = x·r·w and ∂r/∂xⱼ = −r³·xⱼ/n.
  [[nodiscard]] double plain_dx(std::int64_t row, std::int64_t column) const {
    const std::int64_t first = column / shape.width * shape.width;
    const double r = plain_rstd(x, row, first, shape.width);
    double dot = 0;
    for (std::int64_t i = 0; i < shape.width; ++i) {
      dot += dy.at(row, first + i) * weight.at(0, i) * x.at(row, first + i);
    }
    return r * weight.at(0, column - first) * dy.at(row, column) -
           r * r * r * x.at(row, column) / static_cast<double>(shape.width) * dot;
  }

  Dtype dtype;
  NormShape shape;
  Numbers numbers;
  Matrix x;
  Matrix weight;
  Matrix dy;
  Matrix add;
  Matrix dx;
  std::vector<float> rstd;
  std::vector<float> dweight;
};

TEST_P(Kernels, NormBackwardEqualsTheDerivativeOfTheFormula) {
  for (const NormShape& shape : kNormShapes) {
    for (const bool with_add : {false, true}) {
      NormBackward test(dtype(), shape, 3);
      table().rms_norm_backward(test.call(with_add, test.dx), nullptr);
      const auto expected = [&](std::int64_t row, std::int64_t column) {
        return test.plain_dx(row, column) + (with_add ? test.add.at(row, column) : 0.0);
      };
      EXPECT_EQ(difference(test.dx, dtype(), kFp32Limit, 4, expected), "") << shape.width;
      for (std::int64_t i = 0; i < shape.width; ++i) {
        double want = 0.25;  // what was there is kept
        for (std::int64_t row = 0; row < shape.rows; ++row) {
          for (std::int64_t group = 0; group < shape.groups; ++group) {
            const std::int64_t at = group * shape.width + i;
            want += test.dy.at(row, at) * test.x.at(row, at) *
                    plain_rstd(test.x, row, group * shape.width, shape.width);
          }
        }
        EXPECT_NEAR(test.dweight[static_cast<std::size_t>(i)], want, 2e-5);
      }
    }
  }
}

TEST_P(Kernels, NormBackwardMayWriteOverItsGradientOrItsAddend) {
  const NormShape shape{6, 2, 19};
  NormBackward apart(dtype(), shape, 4);
  table().rms_norm_backward(apart.call(true, apart.dx), nullptr);
  const auto same = [&](const Matrix& got) {
    for (std::int64_t row = 0; row < got.rows(); ++row) {
      for (std::int64_t column = 0; column < got.width(); ++column) {
        if (got.at(row, column) != apart.dx.at(row, column)) {
          return false;
        }
      }
    }
    return got.padding_is_intact();
  };
  NormBackward over_dy(dtype(), shape, 4);
  table().rms_norm_backward(over_dy.call(true, over_dy.dy), nullptr);
  EXPECT_TRUE(same(over_dy.dy));
  EXPECT_EQ(over_dy.dweight, apart.dweight);
  NormBackward over_add(dtype(), shape, 4);
  table().rms_norm_backward(over_add.call(true, over_add.add), nullptr);
  EXPECT_TRUE(same(over_add.add));
}

TEST_P(Kernels, NormBackwardGivesTheSameBitsForAnyNumberOfThreads) {
  const NormShape shape{67, 2, 33};
  NormBackward one(dtype(), shape, 5);
  NormBackward three(dtype(), shape, 5);
  testing::with_threads(1, [&] { table().rms_norm_backward(one.call(true, one.dx), nullptr); });
  testing::with_threads(3, [&] { table().rms_norm_backward(three.call(true, three.dx), nullptr); });
  EXPECT_EQ(one.dweight, three.dweight);
  EXPECT_EQ(one.dx, three.dx);
}

TEST_P(Kernels, NormBackwardWithoutWeightGradientGivesTheSameInputGradient) {
  const NormShape shape{4, 1, 21};
  NormBackward with(dtype(), shape, 6);
  table().rms_norm_backward(with.call(false, with.dx), nullptr);
  NormBackward without(dtype(), shape, 6);
  RmsNormBackward call = without.call(false, without.dx);
  call.dweight = nullptr;
  table().rms_norm_backward(call, nullptr);
  EXPECT_EQ(without.dx, with.dx);
}

/// Rotates by random angles (not only those of positions).
struct RopeCase {
  RopeCase(Dtype type, std::int64_t num_rows, std::int64_t num_heads, std::int64_t dim)
      : dtype(type), rows(num_rows), heads(num_heads), head_dim(dim) {
    Numbers numbers(7);
    for (std::int64_t i = 0; i < rows * head_dim / 2; ++i) {
      const double angle = numbers.next(3);
      cosine.push_back(static_cast<float>(std::cos(angle)));
      sine.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  [[nodiscard]] Rope call(Matrix& x, bool inverse) const {
    return {.dtype = dtype,
            .x = x.data(),
            .pitch = x.pitch(),
            .cosine = cosine.data(),
            .sine = sine.data(),
            .rows = rows,
            .heads = heads,
            .head_dim = head_dim,
            .inverse = inverse};
  }
  Dtype dtype;
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t head_dim;
  std::vector<float> cosine;
  std::vector<float> sine;
};

TEST_P(Kernels, RopeTurnsPairsHalfAHeadApart) {
  for (const auto& [rows, heads, dim] :
       {std::tuple{0, 2, 4}, {1, 1, 2}, {3, 5, 6}, {4, 2, 64}, {2, 3, 34}}) {
    const RopeCase rope(dtype(), rows, heads, dim);
    Numbers numbers(8);
    const Matrix before(dtype(), rows, std::int64_t{heads} * dim, numbers);
    for (const bool inverse : {false, true}) {
      Matrix x = before;
      table().rope(rope.call(x, inverse), nullptr);
      const auto expected = [&, half = dim / 2](std::int64_t row, std::int64_t column) {
        const std::int64_t within = column % (2 * half);
        const auto angle = static_cast<std::size_t>(row * half + within % half);
        const double c = rope.cosine[angle];
        const double s = inverse ? -rope.sine[angle] : rope.sine[angle];
        return within < half ? before.at(row, column) * c - before.at(row, column + half) * s
                             : before.at(row, column) * c + before.at(row, column - half) * s;
      };
      EXPECT_EQ(difference(x, dtype(), kFp32Limit, 0.1, expected), "") << dim;
    }
  }
}

TEST_P(Kernels, RopeInverseUndoesRope) {
  const RopeCase rope(dtype(), 5, 3, 10);
  Numbers numbers(9);
  const Matrix before(dtype(), 5, 30, numbers);
  Matrix x = before;
  table().rope(rope.call(x, false), nullptr);
  EXPECT_NE(x, before);
  table().rope(rope.call(x, true), nullptr);
  const double limit = dtype() == Dtype::kBFloat16 ? 0x1.0p-7 : 1e-6;
  EXPECT_EQ(
      difference(x, Dtype::kFloat32, limit, 1,
                 [&](std::int64_t row, std::int64_t column) { return before.at(row, column); }),
      "");
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST_P(Kernels, SwigluEqualsThePlainFormula) {
  for (const auto& [rows, width] : {std::pair{0, 3}, {1, 1}, {3, 7}, {2, 37}, {5, 64}, {2, 129}}) {
    Numbers numbers(10);
    const Matrix gate_up(dtype(), rows, std::int64_t{2} * width, numbers, 6);
    Matrix out(dtype(), rows, width, 1);
    table().swiglu_forward({.dtype = dtype(),
                            .gate_up = gate_up.data(),
                            .gate_up_pitch = gate_up.pitch(),
                            .out = out.data(),
                            .out_pitch = out.pitch(),
                            .rows = rows,
                            .width = width},
                           nullptr);
    const auto expected = [&, w = width](std::int64_t row, std::int64_t column) {
      const double gate = gate_up.at(row, column);
      return gate * sigmoid(gate) * gate_up.at(row, w + column);
    };
    EXPECT_EQ(difference(out, dtype(), kFp32Limit, 1e-3, expected), "") << width;
  }
}

/// Both halves of d(gate_up) by the plain derivative.
double plain_swiglu_gradient(const Matrix& gate_up, const Matrix& dout, std::int64_t row,
                             std::int64_t column) {
  const std::int64_t width = dout.width();
  const std::int64_t i = column % width;
  const double g = gate_up.at(row, i);
  const double s = sigmoid(g);
  return column < width ? dout.at(row, i) * gate_up.at(row, width + i) * (s + g * s * (1 - s))
                        : dout.at(row, i) * g * s;
}

TEST_P(Kernels, SwigluBackwardEqualsTheDerivativeAlsoInPlace) {
  for (const auto& [rows, width] : {std::pair{0, 3}, {1, 1}, {3, 7}, {2, 37}, {5, 64}}) {
    Numbers numbers(11);
    const Matrix gate_up(dtype(), rows, std::int64_t{2} * width, numbers, 6);
    const Matrix dout(dtype(), rows, width, numbers);
    Matrix apart(dtype(), rows, std::int64_t{2} * width, 3);
    Matrix in_place = gate_up;
    const auto run = [&, r = rows, w = width](const Matrix& in, Matrix& result) {
      table().swiglu_backward({.dtype = dtype(),
                               .gate_up = in.data(),
                               .gate_up_pitch = in.pitch(),
                               .dout = dout.data(),
                               .dout_pitch = dout.pitch(),
                               .dgate_up = result.data(),
                               .dgate_up_pitch = result.pitch(),
                               .rows = r,
                               .width = w},
                              nullptr);
    };
    run(gate_up, apart);
    run(in_place, in_place);
    EXPECT_EQ(difference(apart, dtype(), kFp32Limit, 1,
                         [&](std::int64_t row, std::int64_t column) {
                           return plain_swiglu_gradient(gate_up, dout, row, column);
                         }),
              "");
    EXPECT_EQ(in_place, apart);
  }
}

TEST_P(Kernels, SwigluBackwardMakesTheProductAgainAlsoOverItsGradient) {
  for (const auto& [rows, width] : {std::pair{0, 3}, {1, 1}, {3, 7}, {2, 37}, {5, 64}}) {
    Numbers numbers(12);
    const Matrix gate_up(dtype(), rows, std::int64_t{2} * width, numbers, 6);
    const Matrix dout(dtype(), rows, width, numbers);
    Matrix want(dtype(), rows, width);
    table().swiglu_forward(
        {dtype(), gate_up.data(), gate_up.pitch(), want.data(), want.pitch(), rows, width},
        nullptr);
    Matrix gradient(dtype(), rows, std::int64_t{2} * width);
    SwigluBackward call{dtype(),          gate_up.data(), gate_up.pitch(),
                        dout.data(),      dout.pitch(),   gradient.data(),
                        gradient.pitch(), rows,           width};
    table().swiglu_backward(call, nullptr);
    const Matrix want_gradient = gradient;
    Matrix in_place = dout;
    call.dout = in_place.data();
    call.out = in_place.data();
    call.out_pitch = in_place.pitch();
    table().swiglu_backward(call, nullptr);
    EXPECT_EQ(in_place, want);
    EXPECT_EQ(gradient, want_gradient);
  }
}

TEST_P(Kernels, SwigluIsExactOverTheWholeRangeOfTheExponential) {
  constexpr std::int64_t kCount = 4001;
  Matrix gate_up(dtype(), 1, 2 * kCount, 0);
  for (std::int64_t i = 0; i < kCount; ++i) {
    gate_up.set(0, i, -87.0 + 174.0 * static_cast<double>(i) / (kCount - 1));
    gate_up.set(0, kCount + i, 1);
  }
  Matrix out(dtype(), 1, kCount, 0);
  table().swiglu_forward({.dtype = dtype(),
                          .gate_up = gate_up.data(),
                          .gate_up_pitch = 2 * kCount,
                          .out = out.data(),
                          .out_pitch = kCount,
                          .rows = 1,
                          .width = kCount},
                         nullptr);
  const auto expected = [&](std::int64_t, std::int64_t column) {
    const double gate = gate_up.at(0, column);
    return gate * sigmoid(gate);
  };
  EXPECT_EQ(difference(out, dtype(), 1e-6, 0, expected), "");
}

TEST_P(Kernels, SwigluSaturatesWithoutNanFarOutside) {
  for (const double gate : {-1e30, -1e4, -100.0, 100.0, 1e4, 1e30}) {
    Matrix gate_up(dtype(), 1, 2, 0);
    gate_up.set(0, 0, gate);
    gate_up.set(0, 1, 2);
    Matrix dout(dtype(), 1, 1, 0);
    dout.set(0, 0, 3);
    Matrix out(dtype(), 1, 1, 0);
    table().swiglu_forward({dtype(), gate_up.data(), 2, out.data(), 1, 1, 1}, nullptr);
    const double rounded = gate_up.at(0, 0);
    EXPECT_NEAR(out.at(0, 0), gate < 0 ? 0.0 : 2 * rounded, 1e-6 * std::abs(2 * rounded));
    Matrix gradient(dtype(), 1, 2, 0);
    table().swiglu_backward({dtype(), gate_up.data(), 2, dout.data(), 1, gradient.data(), 2, 1, 1},
                            nullptr);
    EXPECT_NEAR(gradient.at(0, 0), gate < 0 ? 0.0 : 6.0, 1e-6);
    EXPECT_NEAR(gradient.at(0, 1), gate < 0 ? 0.0 : 3 * rounded, 0.01 * std::abs(3 * rounded));
  }
}

TEST_P(Kernels, NanStaysInItsRowAndIsNotLost) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Numbers numbers(12);
  const NormShape shape{3, 1, 9};
  Matrix x(dtype(), 3, 9, numbers);
  x.set(1, 4, nan);
  const Matrix weight(dtype(), 1, 9, numbers, 1, 0);
  Matrix y(dtype(), 3, 9);
  std::vector<float> rstd(3);
  table().rms_norm_forward(norm_call(x, weight, &y, rstd.data(), shape, dtype()), nullptr);
  Matrix gate_up(dtype(), 3, 18, numbers);
  gate_up.set(1, 3, nan);
  Matrix out(dtype(), 3, 9);
  table().swiglu_forward({dtype(), gate_up.data(), gate_up.pitch(), out.data(), out.pitch(), 3, 9},
                         nullptr);
  for (std::int64_t column = 0; column < 9; ++column) {
    EXPECT_TRUE(std::isnan(y.at(1, column)));
    EXPECT_TRUE(std::isfinite(y.at(0, column)) && std::isfinite(y.at(2, column)));
    EXPECT_EQ(std::isnan(out.at(1, column)), column == 3);
    EXPECT_TRUE(std::isfinite(out.at(0, column)) && std::isfinite(out.at(2, column)));
  }
}

}  // namespace
}  // namespace longhaul::kernels
