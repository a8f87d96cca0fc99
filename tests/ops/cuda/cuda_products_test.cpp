// Products of a GPU that add to a matrix against fp32 sums, and what is left to others.
#include "ops/cuda/cuda_products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "ops/backend.h"
#include "ops/cuda_library.h"

namespace longhaul::ops {
namespace {

at::TensorOptions bf16() { return at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA); }

at::Tensor random(std::int64_t rows, std::int64_t columns) {
  return at::randn({rows, columns}, bf16());
}

/// [rows, columns] of a wider matrix, all of it not a number.
at::Tensor garbage(std::int64_t rows, std::int64_t columns, std::int64_t more = 8) {
  return at::full({rows, columns + more}, std::numeric_limits<double>::quiet_NaN(), bf16())
      .narrow(1, 0, columns);
}

bool linear_onto(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                 const at::Tensor& add, const at::Tensor& y) {
  return backend_of(x).linear_onto(x, w, bias, add, y);
}

struct Case {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};

class CudaLinearOnto : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { load_cuda_backend(0); }
  void SetUp() override { at::manual_seed(3); }
};

INSTANTIATE_TEST_SUITE_P(Sizes, CudaLinearOnto,
                         ::testing::Values(Case{1, 8, 8}, Case{7, 72, 64}, Case{701, 3600, 3584},
                                           Case{4095, 18960, 3584}));

TEST_P(CudaLinearOnto, RoundsTheSumOnce) {
  const auto [rows, in, out] = GetParam();
  const at::Tensor x = random(rows, in + 8).narrow(1, 0, in);
  const at::Tensor w = random(out, in + 16).narrow(1, 0, in);
  const at::Tensor add = random(rows, out + 24).narrow(1, 0, out) * 100;
  const at::Tensor bias = random(1, out)[0] * 100;
  const at::Tensor before = add.clone();
  const at::Tensor product = at::mm(x.to(at::kFloat), w.to(at::kFloat).t()) + add.to(at::kFloat);
  const auto expect_rounded = [in = in](const at::Tensor& got, const at::Tensor& want) {
    // Half a unit in the last place of the result, and what `in` sums may be off in a tensor core's fp32.
    const at::Tensor limit = want.abs() * 0x1.01p-8 + 2e-6 * static_cast<double>(in);
    EXPECT_TRUE(at::all((got.to(at::kFloat) - want).abs() <= limit).item<bool>());
  };
  const at::Tensor y = garbage(rows, out);
  ASSERT_TRUE(linear_onto(x, w, at::Tensor(), add, y));
  expect_rounded(y, product);
  const at::Tensor with_bias = garbage(rows, out);
  ASSERT_TRUE(linear_onto(x, w, bias, add, with_bias));
  expect_rounded(with_bias, product + bias.to(at::kFloat));
  EXPECT_TRUE(at::equal(add, before));
}

// So that tiles and parts of an exchange repeat the bits of whole rows.
TEST_F(CudaLinearOnto, ARowsBitsDoNotDependOnTheOthers) {
  constexpr std::int64_t kRows = 5000;
  const at::Tensor x = random(kRows, 3600);
  const at::Tensor w = random(3584, 3600);
  const at::Tensor add = random(kRows, 3584);
  const at::Tensor whole = garbage(kRows, 3584);
  ASSERT_TRUE(linear_onto(x, w, at::Tensor(), add, whole));
  for (const std::int64_t count : {1, 64, 900, 4096}) {
    const at::Tensor part = garbage(count, 3584);
    ASSERT_TRUE(
        linear_onto(x.narrow(0, 300, count), w, at::Tensor(), add.narrow(0, 300, count), part));
    EXPECT_TRUE(at::equal(part, whole.narrow(0, 300, count))) << count;
  }
}

TEST_F(CudaLinearOnto, LeavesOtherLayoutsAlone) {
  const at::Tensor x = random(256, 512);
  const at::Tensor w = random(384, 512);
  const at::Tensor add = random(256, 384);
  const at::Tensor none;
  const auto is_left = [&](const at::Tensor& in, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& sum, const at::Tensor& out) {
    return !linear_onto(in, weight, bias, sum, out) && at::all(at::isnan(out)).item<bool>();
  };
  const at::Tensor out = garbage(256, 384);
  EXPECT_TRUE(
      is_left(x.to(at::kFloat), w.to(at::kFloat), none, add.to(at::kFloat), out.to(at::kFloat)))
      << "fp32";
  EXPECT_TRUE(is_left(random(256, 520).narrow(1, 1, 512), w, none, add, out)) << "an odd address";
  EXPECT_TRUE(is_left(x, w, none, add, garbage(256, 384, 3))) << "an odd pitch";
  EXPECT_TRUE(is_left(random(512, 256).t(), w, none, add, out)) << "x in columns";
  EXPECT_TRUE(is_left(x, w, random(1, 384)[0].to(at::kFloat), add, out)) << "a bias in fp32";
  EXPECT_TRUE(is_left(x, w, none, add.narrow(0, 0, 1).expand({256, 384}), out)) << "repeated rows";
  EXPECT_TRUE(linear_onto(x, w, none, add, out));
}

}  // namespace
}  // namespace longhaul::ops
