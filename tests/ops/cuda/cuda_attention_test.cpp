// Attention on a GPU against the CPU's, which is tested against the plain formula.
#include "ops/cuda/cuda_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/cuda_library.h"

namespace longhaul::ops {
namespace {

struct Case {
  std::string name;
  std::int64_t query_heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::vector<std::int32_t> lengths;
};

class CudaAttention : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { load_cuda_backend(0); }
};

AttentionShape shape_of(const Case& test) {
  const auto heads = config::split_heads(test.query_heads, test.kv_heads, 1);
  return {.num_query_heads = test.query_heads,
          .num_kv_heads = test.kv_heads,
          .head_dim = test.head_dim,
          .runs = config::equal_ratio_runs(heads.front())};
}

std::vector<std::int32_t> borders(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> cu = {0};
  for (const std::int32_t length : lengths) {
    cu.push_back(cu.back() + length);
  }
  return cu;
}

/// Relative to the expected values, and at least to `least` per element.
double relative_error(const at::Tensor& got, const at::Tensor& want, double least = 0) {
  const at::Tensor expected = want.to(at::kDouble);
  const double size = std::max(expected.norm().item<double>(),
                               least * std::sqrt(static_cast<double>(want.numel())));
  return (got.cpu().to(at::kDouble) - expected).norm().item<double>() / size;
}

/// Inputs rounded to `type`; forward and backward on the GPU in `type` against fp32 on the CPU.
void compare(const Case& test, at::ScalarType type, double limit,
             AttentionKernels kernels = AttentionKernels::kFastest) {
  at::manual_seed(1);
  AttentionShape shape = shape_of(test);
  shape.kernels = kernels;
  const std::vector<std::int32_t> cu = borders(test.lengths);
  const std::int64_t tokens = cu.back();
  const at::Tensor qkv =
      at::randn({tokens, (test.query_heads + 2 * test.kv_heads) * test.head_dim}).to(type);
  const at::Tensor dout = at::randn({tokens, test.query_heads * test.head_dim}).to(type);
  const at::Tensor qkv_32 = qkv.to(at::kFloat);
  const AttentionOutput want = attention_forward(qkv_32, shape, cu);
  const at::Tensor want_gradient = attention_backward(dout.to(at::kFloat), qkv_32, want, shape, cu);

  const at::Tensor on_gpu = qkv.to(at::kCUDA);
  const AttentionOutput got = attention_forward(on_gpu, shape, cu);
  ASSERT_EQ(got.out.sizes(), want.out.sizes());
  ASSERT_EQ(got.lse.sizes(), want.lse.sizes());
  EXPECT_LT(relative_error(got.out, want.out), limit);
  EXPECT_LT(relative_error(got.lse, want.lse), limit);
  const at::Tensor gradient = attention_backward(dout.to(at::kCUDA), on_gpu, got, shape, cu);
  const std::int64_t q = test.query_heads * test.head_dim;
  const std::int64_t kv = test.kv_heads * test.head_dim;
  // A document of one token: zero, and rounding of products of size sqrt(head_dim).
  const double least = tokens == static_cast<std::int64_t>(test.lengths.size()) ? 1 : 0;
  EXPECT_LT(relative_error(gradient.narrow(1, 0, q), want_gradient.narrow(1, 0, q), least), limit);
  EXPECT_LT(relative_error(gradient.narrow(1, q, kv), want_gradient.narrow(1, q, kv), least),
            limit);
  EXPECT_LT(relative_error(gradient.narrow(1, q + kv, kv), want_gradient.narrow(1, q + kv, kv)),
            limit);
}

TEST_P(CudaAttention, EqualsTheCpuInFloat32) { compare(GetParam(), at::kFloat, 1e-5); }

TEST_P(CudaAttention, IsNearTheCpuInBfloat16) { compare(GetParam(), at::kBFloat16, 1e-2); }

TEST_P(CudaAttention, IsNearTheCpuWithEveryKernel) {
  for (const AttentionKernels kernels :
       {AttentionKernels::kCudnn, AttentionKernels::kCudnnPerDocument, AttentionKernels::kFlash}) {
    SCOPED_TRACE(static_cast<int>(kernels));
    compare(GetParam(), at::kBFloat16, 1e-2, kernels);
  }
}

/// What lies behind a row in memory must not reach it: kernels read whole tiles.
TEST_P(CudaAttention, ReadsNothingBehindTheRow) {
  const Case& test = GetParam();
  for (const AttentionKernels kernels :
       {AttentionKernels::kFastest, AttentionKernels::kCudnn, AttentionKernels::kFlash}) {
    SCOPED_TRACE(static_cast<int>(kernels));
    at::manual_seed(1);
    AttentionShape shape = shape_of(test);
    shape.kernels = kernels;
    const std::vector<std::int32_t> cu = borders(test.lengths);
    const std::int64_t tokens = cu.back();
    const auto before_nan = [&](std::int64_t columns) {
      const at::Tensor all =
          at::randn({tokens, columns}, at::device(at::kCUDA).dtype(at::kBFloat16));
      return at::cat({all, at::full({512, columns}, std::nan(""), all.options())})
          .narrow(0, 0, tokens);
    };
    const at::Tensor qkv = before_nan((test.query_heads + 2 * test.kv_heads) * test.head_dim);
    const at::Tensor dout = before_nan(test.query_heads * test.head_dim);
    AttentionOutput made = attention_forward(qkv, shape, cu);
    EXPECT_TRUE(at::isfinite(made.out).all().item<bool>());
    EXPECT_TRUE(at::isfinite(made.lse).all().item<bool>());
    const at::Tensor out = before_nan(made.out.size(1));
    out.copy_(made.out);
    made.out = out;
    EXPECT_TRUE(at::isfinite(attention_backward(dout, qkv, made, shape, cu)).all().item<bool>());
  }
}

/// A row of a case on the GPU, the same every time.
struct RandomRow {
  std::vector<std::int32_t> cu_seqlens;
  at::Tensor qkv;
  at::Tensor dout;
};
RandomRow random_row(const Case& test) {
  at::manual_seed(1);
  const auto options = at::device(at::kCUDA).dtype(at::kBFloat16);
  std::vector<std::int32_t> cu = borders(test.lengths);
  const std::int64_t tokens = cu.back();
  return {std::move(cu),
          at::randn({tokens, (test.query_heads + 2 * test.kv_heads) * test.head_dim}, options),
          at::randn({tokens, test.query_heads * test.head_dim}, options)};
}

/// libtorch's switch, as --deterministic true sets it.
class Deterministic {
 public:
  Deterministic() { at::globalContext().setDeterministicAlgorithms(true, false); }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;
  ~Deterministic() { at::globalContext().setDeterministicAlgorithms(false, false); }
};

TEST_P(CudaAttention, RepeatsItsBitsWhenDeterministic) {
  const Case& test = GetParam();
  const Deterministic deterministic;
  const AttentionShape shape = shape_of(test);
  const auto [cu, qkv, dout] = random_row(test);
  const AttentionOutput made = attention_forward(qkv, shape, cu);
  const at::Tensor gradient = attention_backward(dout, qkv, made, shape, cu);
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(attention_forward(qkv, shape, cu).out.equal(made.out));
    EXPECT_TRUE(attention_backward(dout, qkv, made, shape, cu).equal(gradient));
  }
}

TEST_P(CudaAttention, WritesGradientsOverItsInputs) {
  const Case& test = GetParam();
  const Deterministic deterministic;  // bits can be compared
  for (const bool cudnn : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(!cudnn, false);
    const AttentionShape shape = shape_of(test);
    const auto [cu, qkv, dout] = random_row(test);
    const AttentionOutput made = attention_forward(qkv, shape, cu);
    const at::Tensor want = attention_backward(dout, qkv, made, shape, cu);
    const at::Tensor over = qkv.clone();
    attention_backward(dout, over, made, shape, cu, over);
    EXPECT_LT(relative_error(over, want.cpu()), cudnn ? 5e-3 : 1e-9);
  }
}

/// A rank's heads where KV heads serve different numbers of them.
TEST(CudaAttentionHeads, OfUnequalGroupsEqualTheCpus) {
  load_cuda_backend(0);
  for (const config::RankHeads& heads : config::split_heads(28, 4, 3)) {
    const AttentionShape shape{.num_query_heads = heads.num_query_heads(),
                               .num_kv_heads = heads.num_kv_heads(),
                               .head_dim = 128,
                               .runs = config::equal_ratio_runs(heads)};
    at::manual_seed(1);
    const std::vector<std::int32_t> cu = {0, 300, 301, 2500};
    const at::Tensor qkv =
        at::randn({cu.back(), (shape.num_query_heads + 2 * shape.num_kv_heads) * 128})
            .to(at::kBFloat16);
    const at::Tensor dout = at::randn({cu.back(), shape.num_query_heads * 128}).to(at::kBFloat16);
    const at::Tensor qkv_32 = qkv.to(at::kFloat);
    const AttentionOutput want = attention_forward(qkv_32, shape, cu);
    const at::Tensor on_gpu = qkv.to(at::kCUDA);
    const AttentionOutput got = attention_forward(on_gpu, shape, cu);
    EXPECT_LT(relative_error(got.out, want.out), 1e-2);
    EXPECT_LT(relative_error(attention_backward(dout.to(at::kCUDA), on_gpu, got, shape, cu),
                             attention_backward(dout.to(at::kFloat), qkv_32, want, shape, cu)),
              1e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaAttention,
    ::testing::Values(
        Case{"one_token", 4, 4, 64, {1}}, Case{"one_token_of_groups", 28, 4, 128, {1}},
        Case{"seven_tokens", 4, 2, 64, {7}},
        // More documents than one call takes, and spare places.
        Case{"many_documents", 4, 2, 64, std::vector<std::int32_t>(504, 130)},
        Case{"seventeen_documents", 4, 2, 64, std::vector<std::int32_t>(17, 65)},
        Case{"short_documents", 8, 2, 64, {1, 7, 130, 33}}, Case{"one_long", 4, 2, 128, {2500}},
        Case{"long_and_short", 4, 1, 64, {2048, 1, 65, 4095, 7}},
        Case{"qwen_heads", 28, 4, 128, {2100, 100}}, Case{"odd_head_size", 4, 2, 12, {2049, 5}},
        Case{"nine_heads", 9, 3, 64, {2049, 300, 12}}),
    [](const ::testing::TestParamInfo<Case>& test) { return test.param.name; });

}  // namespace
}  // namespace longhaul::ops
