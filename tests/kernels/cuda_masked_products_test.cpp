// LoRA's products under dropout against the plain formulas in fp64, with the mask that the CPU's dropout kernel draws.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
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

struct Case {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t rank;
  float probability = 0.25F;
  std::int64_t first_column = 0;
};

/// x, u and a of a case in bf16 with `gap` elements between their rows, and the mask, scaled.
struct Inputs {
  explicit Inputs(const Case& test, std::int64_t gap = 8)
      : x(Dtype::kBFloat16, test.rows, test.width, numbers, 1, gap),
        u(Dtype::kBFloat16, test.rows, test.rank, numbers, 1, gap),
        a(Dtype::kBFloat16, test.rank, test.width, numbers, 1, gap),
        mask(Dtype::kFloat32, test.rows, test.width, 0) {
    for (std::int64_t row = 0; row < test.rows; ++row) {
      keys.push_back((std::uint64_t{3} << 32) | static_cast<std::uint64_t>(row));
      for (std::int64_t column = 0; column < test.width; ++column) {
        mask.set(row, column, 1);
      }
    }
    cpu_kernels().dropout({.dtype = Dtype::kFloat32,
                           .x = mask.data(),
                           .x_pitch = mask.pitch(),
                           .y = mask.data(),
                           .y_pitch = mask.pitch(),
                           .row_keys = keys.data(),
                           .seed_key = 5,
                           .first_column = test.first_column,
                           .rows = test.rows,
                           .width = test.width,
                           .probability = test.probability},
                          nullptr);
  }

  /// drop(x): what is dropped counts for nothing, whatever it is.
  [[nodiscard]] double dropped(std::int64_t row, std::int64_t column) const {
    const double factor = mask.at(row, column);
    return factor == 0 ? 0.0 : factor * x.at(row, column);
  }
  /// drop(x)·aᵀ and uᵀ·drop(x).
  [[nodiscard]] double product(std::int64_t row, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t k = 0; k < x.width(); ++k) {
      sum += dropped(row, k) * a.at(column, k);
    }
    return sum;
  }
  [[nodiscard]] double a_gradient(std::int64_t row, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t s = 0; s < x.rows(); ++s) {
      sum += u.at(s, row) * dropped(s, column);
    }
    return sum;
  }

  Numbers numbers{1};
  Matrix x;
  Matrix u;
  Matrix a;
  Matrix mask;
  std::vector<std::uint64_t> keys;
};

/// The inputs on the device.
struct Device {
  Device(const Case& test, const Inputs& in)
      : x(in.x, Dtype::kBFloat16),
        u(in.u, Dtype::kBFloat16),
        a(in.a, Dtype::kBFloat16),
        keys(in.keys),
        call{.x = x.data(),
             .x_pitch = in.x.pitch(),
             .u = u.data(),
             .u_pitch = in.u.pitch(),
             .a = a.data(),
             .a_pitch = in.a.pitch(),
             .row_keys = keys.data(),
             .seed_key = 5,
             .first_column = test.first_column,
             .rows = test.rows,
             .width = test.width,
             .rank = test.rank,
             .probability = test.probability} {}

  DeviceMatrix x;
  DeviceMatrix u;
  DeviceMatrix a;
  DeviceArray<std::uint64_t> keys;
  MaskedProduct call;
};

/// Of a sum of `count` products of numbers below 1 in fp32.
double tolerance(std::int64_t count) { return 1e-6 * std::sqrt(static_cast<double>(count)) + 1e-5; }

class CudaMaskedProducts : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, CudaMaskedProducts,
                         ::testing::Values(Case{1, 64, 8}, Case{31, 64, 16}, Case{33, 576, 24},
                                           Case{100, 192, 32}, Case{1025, 128, 40},
                                           Case{260, 320, 48, 0.05F}, Case{77, 896, 56},
                                           Case{2300, 64, 64}, Case{50, 3584, 48, 0.05F, 3584},
                                           Case{17, 64, 16, 1.0F}, Case{17, 64, 16, 0.0F},
                                           Case{5000, 128, 24, 0.1F, 128}),
                         [](const auto& test) {
                           return std::to_string(test.param.rows) + "_" +
                                  std::to_string(test.param.width) + "_" +
                                  std::to_string(test.param.rank) + "_" +
                                  std::to_string(static_cast<int>(100 * test.param.probability));
                         });

TEST_P(CudaMaskedProducts, TakeTheirShapes) {
  const Inputs in(GetParam());
  EXPECT_TRUE(takes_masked_product(Device(GetParam(), in).call));
}

TEST_P(CudaMaskedProducts, MultiplyByA) {
  const Case& test = GetParam();
  const Inputs in(test);
  const Device device(test, in);
  cuda_kernels().masked_product(device.call, nullptr);
  EXPECT_EQ(
      difference(device.u.read(), Dtype::kBFloat16, tolerance(test.width), 1,
                 [&](std::int64_t row, std::int64_t column) { return in.product(row, column); }),
      "");
  EXPECT_TRUE(device.u.read().padding_is_intact());
}

TEST_P(CudaMaskedProducts, AddTheGradientOfA) {
  const Case& test = GetParam();
  const Inputs in(test);
  Device device(test, in);
  Numbers numbers(2);
  const Matrix before(Dtype::kFloat32, test.rank, test.width, numbers, 1, 8);
  const DeviceMatrix gradient(before, Dtype::kFloat32);
  device.call.a = gradient.data();
  device.call.a_pitch = before.pitch();
  cuda_kernels().masked_a_gradient(device.call, nullptr);
  const Matrix got = gradient.read();
  EXPECT_EQ(difference(got, Dtype::kFloat32, tolerance(test.rows), 1,
                       [&](std::int64_t row, std::int64_t column) {
                         return before.at(row, column) + in.a_gradient(row, column);
                       }),
            "");
  EXPECT_TRUE(got.padding_is_intact());
  // The same bits again.
  const DeviceMatrix again(before, Dtype::kFloat32);
  device.call.a = again.data();
  cuda_kernels().masked_a_gradient(device.call, nullptr);
  EXPECT_EQ(again.read(), got);
}

TEST_P(CudaMaskedProducts, AddTheGradientOfX) {
  const Case& test = GetParam();
  const Inputs in(test);
  const Device device(test, in);
  cuda_kernels().masked_x_gradient(device.call, nullptr);
  const Matrix got = device.x.read();
  EXPECT_EQ(difference(got, Dtype::kBFloat16, tolerance(test.rank), 1,
                       [&](std::int64_t row, std::int64_t column) {
                         double sum = 0;
                         for (std::int64_t r = 0; r < test.rank; ++r) {
                           sum += in.u.at(row, r) * in.a.at(r, column);
                         }
                         return in.x.at(row, column) + in.mask.at(row, column) * sum;
                       }),
            "");
  EXPECT_TRUE(got.padding_is_intact());
}

/// Dropped places count for nothing whatever stands there; row 17 has no neighbours in its tile.
TEST(CudaMaskedProductValues, DroppedOnesAreNotEvenMultiplied) {
  const Case test{17, 64, 16};
  Inputs in(test);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t row = 0; row < test.rows; ++row) {
    for (std::int64_t column = 0; column < test.width; ++column) {
      if (in.mask.at(row, column) == 0) {
        in.x.set(row, column, nan);
      }
    }
  }
  Device device(test, in);
  const Matrix zeros(Dtype::kFloat32, test.rank, test.width, 8);
  const DeviceMatrix gradient(zeros, Dtype::kFloat32);
  MaskedProduct call = device.call;
  call.a = gradient.data();
  call.a_pitch = zeros.pitch();
  cuda_kernels().masked_a_gradient(call, nullptr);
  EXPECT_EQ(
      difference(gradient.read(), Dtype::kFloat32, tolerance(test.rows), 1,
                 [&](std::int64_t row, std::int64_t column) { return in.a_gradient(row, column); }),
      "");
  cuda_kernels().masked_product(device.call, nullptr);
  EXPECT_EQ(
      difference(device.u.read(), Dtype::kBFloat16, tolerance(test.width), 1,
                 [&](std::int64_t row, std::int64_t column) { return in.product(row, column); }),
      "");
}

TEST(CudaMaskedProductShapes, OthersAreNotTaken) {
  const Case good{4, 64, 8};
  const Inputs in(good);
  const MaskedProduct call = Device(good, in).call;
  const auto taken = [&](auto change) {
    MaskedProduct other = call;
    change(other);
    return takes_masked_product(other);
  };
  EXPECT_TRUE(taken([](MaskedProduct&) {}));
  EXPECT_FALSE(taken([](MaskedProduct& a) { a.width = 96; }));
  EXPECT_FALSE(taken([](MaskedProduct& a) { a.width = 0; }));
  EXPECT_FALSE(taken([](MaskedProduct& a) { a.rank = 12; }));
  EXPECT_FALSE(taken([](MaskedProduct& a) { a.rank = 72; }));
  EXPECT_FALSE(taken([](MaskedProduct& a) { a.rank = 0; }));
  EXPECT_FALSE(taken([](MaskedProduct& a) { a.first_column = 33; }));
  EXPECT_FALSE(taken([](MaskedProduct& a) { a.x_pitch = 65; }));
  EXPECT_FALSE(taken([](MaskedProduct& a) { a.u = static_cast<char*>(a.u) + 2; }));
  EXPECT_FALSE(taken([](MaskedProduct& a) { a.a_pitch = 68; }));
}

TEST(CudaMaskedProductShapes, NoRowsAreNoWork) {
  Numbers numbers(2);
  const Matrix before(Dtype::kFloat32, 8, 64, numbers, 1, 8);
  const DeviceMatrix gradient(before, Dtype::kFloat32);
  MaskedProduct call{.a = gradient.data(), .a_pitch = before.pitch(), .width = 64, .rank = 8};
  cuda_kernels().masked_product(call, nullptr);
  cuda_kernels().masked_x_gradient(call, nullptr);
  cuda_kernels().masked_a_gradient(call, nullptr);
  EXPECT_EQ(gradient.read(), before);
}

}  // namespace
}  // namespace longhaul::kernels
