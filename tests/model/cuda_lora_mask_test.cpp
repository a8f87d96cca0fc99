// Dropout inside the products on a GPU against masked copies on the CPU in fp32.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "model/lora_mask.h"
#include "ops/cuda_library.h"
#include "ops/masked_products.h"
#include "ops/room.h"

namespace longhaul::model {
namespace {

constexpr std::int64_t kRows = 700;
constexpr std::int64_t kColumns = 1536;

/// x, dx and du stand in front of and in the room of wider rows, as in a layer.
struct Operands {
  explicit Operands(std::int64_t rank) {
    at::manual_seed(1);
    x = at::randn({kRows, kColumns}).to(at::kBFloat16);
    du = at::randn({kRows, rank}).to(at::kBFloat16);
    a = at::randn({rank, kColumns}).div(std::sqrt(1.0 * kColumns)).to(at::kBFloat16);
    keys.resize(kRows);
    std::iota(keys.begin(), keys.end(), 7);
  }
  [[nodiscard]] LoraDropout dropout(at::Device device) const {
    return ops::DropoutKeys{.row_keys = keys,
                            .on_device = ops::keys_on_device(keys, device),
                            .seed_key = 5,
                            .probability = 0.25F};
  }

  at::Tensor x;
  at::Tensor du;
  at::Tensor a;
  std::vector<std::uint64_t> keys;
};

at::Tensor on_gpu(const at::Tensor& matrix, std::int64_t room) {
  const at::Tensor copy = ops::empty_with_room(matrix.size(0), matrix.size(1), room,
                                               matrix.options().device(at::kCUDA));
  copy.copy_(matrix);
  return copy;
}

void expect_near(const at::Tensor& got, const at::Tensor& want) {
  const double error = (got.cpu().to(at::kFloat) - want).norm().item<double>();
  EXPECT_LT(error, 4e-3 * want.norm().item<double>());
}

constexpr std::int64_t kNoKernels = 20;  // a rank for which there are masked copies

class CudaLoraMask : public ::testing::TestWithParam<std::int64_t> {
 protected:
  static void SetUpTestSuite() { ops::load_cuda_backend(0); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, CudaLoraMask, ::testing::Values(8, 16, kNoKernels, 24, 48, 64),
                         ::testing::PrintToStringParamName());

TEST_P(CudaLoraMask, ProductsEqualThoseOfMaskedCopies) {
  const std::int64_t rank = GetParam();
  const Operands in(rank);
  const LoraDropout host = in.dropout(at::kCPU);
  const LoraDropout device = in.dropout(at::kCUDA);
  const at::Tensor x = in.x.to(at::kFloat);
  const at::Tensor du = in.du.to(at::kFloat);
  const at::Tensor a = in.a.to(at::kFloat);

  at::Tensor want = at::empty({kRows, rank});
  multiply_by_a(x, a, host, want);
  const at::Tensor wide = on_gpu(in.x, 64);
  const at::Tensor u = ops::with_room(wide, 64).narrow(1, kColumns, rank);
  multiply_by_a(wide, on_gpu(in.a, 64), device, u);
  EXPECT_EQ(ops::masked_product(wide, on_gpu(in.a, 64), *device, u), rank != kNoKernels);
  expect_near(u, want);

  want = at::zeros({rank, kColumns});
  each_a_gradient(du, x, host, 0, [&](const at::Tensor& part) { want += part; });
  at::Tensor got = at::zeros({rank, kColumns}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  each_a_gradient(on_gpu(in.du, 24), wide, device, 0, [&](const at::Tensor& part) { got += part; });
  expect_near(got, want);
  EXPECT_EQ(ops::masked_a_gradient(on_gpu(in.du, 24), wide, *device, 0).has_value(),
            rank != kNoKernels);

  want = x.clone();
  add_through_a(du, a, host, want);
  got = on_gpu(in.x, 64);
  add_through_a(on_gpu(in.du, 24), on_gpu(in.a, 64), device, got);
  expect_near(got, want);
  EXPECT_EQ(ops::masked_x_gradient(on_gpu(in.du, 24), on_gpu(in.a, 64), *device, got),
            rank != kNoKernels);
}

/// Some of the columns, as ranks hold of the output projection's input.
TEST_P(CudaLoraMask, NumbersColumnsFromTheFirst) {
  const std::int64_t rank = GetParam();
  const Operands in(rank);
  const at::Tensor du = on_gpu(in.du, 24);
  const at::Tensor x = on_gpu(in.x, 64);
  const auto gradient = [&](std::int64_t first, std::int64_t columns) {
    at::Tensor sum = at::zeros({rank, columns}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
    each_a_gradient(du, x.narrow(1, first, columns), in.dropout(at::kCUDA), first,
                    [&](const at::Tensor& part) { sum += part; });
    return sum;
  };
  const at::Tensor whole = gradient(0, kColumns);
  for (const std::int64_t first : {640, 704}) {
    EXPECT_TRUE(at::allclose(gradient(first, 320), whole.narrow(1, first, 320), 1e-5, 1e-5));
  }
}

}  // namespace
}  // namespace longhaul::model
