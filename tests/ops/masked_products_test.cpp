// On the CPU, which has no such kernels: calls say so and write nothing. The kernels' own results: tests/kernels and,
// beside masked copies, tests/model/cuda_lora_mask_test.cpp.
#include "ops/masked_products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace longhaul::ops {
namespace {

struct Matrices {
  at::Tensor x = at::ones({3, 64}, at::kBFloat16);
  at::Tensor u = at::full({3, 8}, 2, at::kBFloat16);
  at::Tensor a = at::full({8, 64}, 3, at::kBFloat16);
  std::vector<std::uint64_t> row_keys = {1, 2, 3};
  DropoutKeys keys{.row_keys = row_keys, .seed_key = 5, .probability = 0.5F};
};

TEST(MaskedProducts, AreLeftToTheCallerOnTheCpu) {
  const Matrices m;
  EXPECT_FALSE(masked_product(m.x, m.a, m.keys, m.u));
  EXPECT_FALSE(masked_a_gradient(m.u, m.x, m.keys, 0).has_value());
  EXPECT_FALSE(masked_x_gradient(m.u, m.a, m.keys, m.x));
  EXPECT_TRUE(m.x.eq(1).all().item<bool>());
  EXPECT_TRUE(m.u.eq(2).all().item<bool>());
}

TEST(MaskedProducts, RefuseMatricesThatDoNotFitTogether) {
  const Matrices m;
  EXPECT_THROW((void)masked_product(m.x, m.a.narrow(1, 0, 32), m.keys, m.u), base::InternalError);
  EXPECT_THROW((void)masked_x_gradient(m.u.narrow(0, 0, 2), m.a, m.keys, m.x), base::InternalError);
  EXPECT_THROW((void)masked_a_gradient(m.u.to(at::kFloat), m.x, m.keys, 0), base::InternalError);
  const DropoutKeys few{.row_keys = std::span(m.row_keys).first(2)};
  EXPECT_THROW((void)masked_product(m.x, m.a, few, m.u), base::InternalError);
  DropoutKeys unlikely = m.keys;
  unlikely.probability = -0.1F;
  EXPECT_THROW((void)masked_product(m.x, m.a, unlikely, m.u), base::InternalError);
}

}  // namespace
}  // namespace longhaul::ops
