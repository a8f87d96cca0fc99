// Matrix products in every layout of a training step against libtorch in fp64: odd sizes, pitched
// views, no rows, garbage in the output.
#include "ops/matmul.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace longhaul::ops {
namespace {

/// A [rows, columns] view with a gap between its rows.
at::Tensor pitched(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  return at::randn({rows, columns + 3}).to(type).narrow(1, 2, columns);
}

at::Tensor garbage(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  return at::full({rows, columns + 5}, std::numeric_limits<double>::quiet_NaN(), type)
      .narrow(1, 1, columns);
}

at::Tensor exact(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

/// Within `limit` of the size of the sums that were formed.
void expect_near(const at::Tensor& got, const at::Tensor& want, double limit) {
  ASSERT_EQ(got.sizes(), want.sizes());
  if (want.numel() == 0) {
    return;
  }
  const double scale = std::max(want.abs().max().item<double>(), 1.0);
  EXPECT_LE((exact(got) - want).abs().max().item<double>(), limit * scale);
}

struct Case {
  at::ScalarType type;
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};

class Matmul : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(GetParam().rows * 100 + GetParam().in); }
  [[nodiscard]] static double limit() {
    return GetParam().type == at::kBFloat16 ? 2 * 0x1.0p-8 : 2e-6;
  }
  const at::ScalarType type = GetParam().type;
  const std::int64_t rows = GetParam().rows;
  const std::int64_t in = GetParam().in;
  const std::int64_t out = GetParam().out;
};

INSTANTIATE_TEST_SUITE_P(
    Sizes, Matmul,
    ::testing::Values(Case{at::kFloat, 0, 5, 7}, Case{at::kFloat, 1, 1, 1},
                      Case{at::kFloat, 17, 33, 9}, Case{at::kFloat, 64, 24, 48},
                      Case{at::kBFloat16, 0, 5, 7}, Case{at::kBFloat16, 1, 1, 1},
                      Case{at::kBFloat16, 17, 33, 9}, Case{at::kBFloat16, 64, 24, 48}),
    [](const auto& test) {
      return std::string(test.param.type == at::kFloat ? "fp32_" : "bf16_") +
             std::to_string(test.param.rows) + "_" + std::to_string(test.param.in) + "_" +
             std::to_string(test.param.out);
    });

TEST_P(Matmul, LinearMultipliesByTheTransposeAndAddsTheBias) {
  const at::Tensor x = pitched(rows, in, type);
  const at::Tensor w = pitched(out, in, type);
  const at::Tensor bias = at::randn({out}).to(type);
  const at::Tensor plain = garbage(rows, out, type);
  linear(x, w, at::Tensor(), plain);
  expect_near(plain, at::matmul(exact(x), exact(w).t()), limit());
  const at::Tensor with_bias = garbage(rows, out, type);
  linear(x, w, bias, with_bias);
  expect_near(with_bias, at::matmul(exact(x), exact(w).t()) + exact(bias), limit());
}

TEST_P(Matmul, LinearOntoAddsAMatrixToTheProduct) {
  const at::Tensor x = pitched(rows, in, type);
  const at::Tensor w = pitched(out, in, type);
  const at::Tensor add = pitched(rows, out, type);
  const at::Tensor before = add.clone();
  const at::Tensor want = exact(add) + at::matmul(exact(x), exact(w).t());
  const at::Tensor y = garbage(rows, out, type);
  linear_onto(x, w, at::Tensor(), add, y);
  expect_near(y, want, limit());
  const at::Tensor bias = at::randn({out}).to(type);
  linear_onto(x, w, bias, add, y);
  expect_near(y, want + exact(bias), limit());
  EXPECT_TRUE(add.equal(before));
  EXPECT_THROW(linear_onto(x, w, bias, y, y), base::InternalError);
  EXPECT_THROW(linear_onto(x, w, bias, pitched(rows + 1, out, type), y), base::InternalError);
  const at::Tensor without = garbage(rows, out, type);
  linear_onto(x, w, bias, at::Tensor(), without);
  expect_near(without, at::matmul(exact(x), exact(w).t()) + exact(bias), limit());
}

TEST_P(Matmul, LinearAccumulateAddsAScaledProduct) {
  const at::Tensor x = pitched(rows, in, type);
  const at::Tensor w = pitched(out, in, type);
  const at::Tensor y = pitched(rows, out, type);
  const at::Tensor want = exact(y) + 0.75 * at::matmul(exact(x), exact(w).t());
  linear_accumulate(x, w, 0.75, y);
  expect_near(y, want, limit());
}

TEST_P(Matmul, ProductOverwritesWhateverWasThere) {
  const at::Tensor dy = pitched(rows, out, type);
  const at::Tensor w = pitched(out, in, type);
  for (const double alpha : {1.0, -2.5}) {
    const at::Tensor dx = garbage(rows, in, type);
    product(dy, w, alpha, dx);
    expect_near(dx, alpha * at::matmul(exact(dy), exact(w)), limit());
  }
}

TEST_P(Matmul, ProductAccumulateAdds) {
  const at::Tensor dy = pitched(rows, out, type);
  const at::Tensor w = pitched(out, in, type);
  const at::Tensor dx = pitched(rows, in, type);
  const at::Tensor want = exact(dx) + 0.5 * at::matmul(exact(dy), exact(w));
  product_accumulate(dy, w, 0.5, dx);
  expect_near(dx, want, limit());
}

TEST_P(Matmul, WeightGradientAddsInFp32WhateverTheInputs) {
  const at::Tensor dy = pitched(rows, out, type);
  const at::Tensor x = pitched(rows, in, type);
  const at::Tensor whole = at::randn({out, in + 6});
  const at::Tensor untouched = whole.clone();
  const at::Tensor gradient = whole.narrow(1, 4, in);
  const at::Tensor want = exact(gradient) + 1.5 * at::matmul(exact(dy).t(), exact(x));
  weight_gradient(dy, x, 1.5, gradient);
  expect_near(gradient, want, 2e-6);
  EXPECT_TRUE(whole.narrow(1, 0, 4).equal(untouched.narrow(1, 0, 4)));
  EXPECT_TRUE(whole.narrow(1, in + 4, 2).equal(untouched.narrow(1, in + 4, 2)));
}

TEST_P(Matmul, BiasGradientAddsColumnSumsInFp32) {
  const at::Tensor dy = pitched(rows, out, type);
  const at::Tensor gradient = at::randn({out});
  const at::Tensor want = exact(gradient) + exact(dy).sum(0);
  bias_gradient(dy, gradient);
  expect_near(gradient, want, 2e-6);
}

TEST_P(Matmul, OutputsOutsideTheViewAreNotWritten) {
  const at::Tensor whole = at::full({rows, out + 5}, 7, type);
  linear(pitched(rows, in, type), pitched(out, in, type), at::Tensor(), whole.narrow(1, 2, out));
  EXPECT_TRUE(whole.narrow(1, 0, 2).eq(7).all().item<bool>());
  EXPECT_TRUE(whole.narrow(1, out + 2, 3).eq(7).all().item<bool>());
}

TEST(MatmulPrecision, Bfloat16GradientsDoNotGetLostInALargeSum) {
  // 256 + n·2⁻⁸ is exact in fp32; in bfloat16 every addend would be rounded away.
  const std::int64_t rows = 200;
  const at::Tensor dy = at::ones({rows, 3}, at::kBFloat16);
  const at::Tensor x = at::full({rows, 5}, 0x1.0p-8, at::kBFloat16);
  const at::Tensor gradient = at::full({3, 5}, 256.0);
  weight_gradient(dy, x, 1, gradient);
  EXPECT_TRUE(gradient.eq(256 + static_cast<double>(rows) * 0x1.0p-8).all().item<bool>());
  const at::Tensor bias = at::full({5}, 256.0);
  bias_gradient(x, bias);
  EXPECT_TRUE(bias.eq(256 + static_cast<double>(rows) * 0x1.0p-8).all().item<bool>());
}

}  // namespace
}  // namespace longhaul::ops
