#include "ops/cuda/cuda_products.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace longhaul::ops {
namespace {

constexpr std::size_t kMostWorkspace = std::size_t{1} << 20;
constexpr std::uint32_t kAlignment = 16;

/// What a choice of kernel depends on. As cuBLASLt sees it, column by column: out [n, rows] = add + wᵀ·x [k, rows] + bias.
struct Shape {
  bool has_bias = false;
  std::int64_t n = 0;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t w_pitch = 0;
  std::int64_t x_pitch = 0;
  std::int64_t add_pitch = 0;
  std::int64_t out_pitch = 0;
  auto operator<=>(const Shape&) const = default;
};

class Description {
 public:
  Description(const Shape& s, const void* bias) {
    TORCH_CUDABLAS_CHECK(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (s.has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    layout(w, s.k, s.n, s.w_pitch);
    layout(x, s.k, s.rows, s.x_pitch);
    layout(add, s.n, s.rows, s.add_pitch);
    layout(out, s.n, s.rows, s.out_pitch);
  }
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t w{};
  cublasLtMatrixLayoutOpaque_t x{};
  cublasLtMatrixLayoutOpaque_t add{};
  cublasLtMatrixLayoutOpaque_t out{};

 private:
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t which, Value value) {
    TORCH_CUDABLAS_CHECK(cublasLtMatmulDescSetAttribute(
        &operation, which, static_cast<const void*>(&value), sizeof value));
  }
  static void layout(cublasLtMatrixLayoutOpaque_t& matrix, std::int64_t rows, std::int64_t columns,
                     std::int64_t pitch) {
    TORCH_CUDABLAS_CHECK(cublasLtMatrixLayoutInit(&matrix, CUDA_R_16BF,
                                                  static_cast<std::uint64_t>(rows),
                                                  static_cast<std::uint64_t>(columns), pitch));
  }
};

using Choice = cublasLtMatmulHeuristicResult_t;

std::optional<Choice> first_kernel(Description& d) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  TORCH_CUDABLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
    TORCH_CUDABLAS_CHECK(
        cublasLtMatmulPreferenceSetAttribute(&preference, which, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(which, kAlignment);
  }
  Choice choice{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), &d.operation, &d.w,
                                     &d.x, &d.add, &d.out, &preference, 1, &choice, &count);
  const bool found =
      status == CUBLAS_STATUS_SUCCESS && count == 1 && choice.state == CUBLAS_STATUS_SUCCESS;
  return found ? std::optional(choice) : std::nullopt;
}

/// The heuristics take longer than a small product: they are asked once per shape.
std::optional<Choice> kernel_for(const Shape& shape, Description& description) {
  static std::mutex mutex;
  static std::map<Shape, std::optional<Choice>> choices;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = choices.try_emplace(shape);
  if (is_new) {
    found->second = first_kernel(description);
  }
  return found->second;
}

bool is_taken(const at::Tensor& tensor) {
  return tensor.is_cuda() && tensor.scalar_type() == at::kBFloat16 &&
         reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kAlignment == 0 &&
         tensor.stride(-1) == 1;
}

bool is_taken_matrix(const at::Tensor& matrix) {
  return is_taken(matrix) && matrix.stride(0) * matrix.element_size() % kAlignment == 0 &&
         matrix.stride(0) >= matrix.size(1);
}

}  // namespace

bool cuda_linear_onto(const at::Tensor& x_SK, const at::Tensor& w_NK, const at::Tensor& bias_N,
                      const at::Tensor& add_SN, const at::Tensor& out_SN) {
  const bool takes = x_SK.size(0) > 0 && is_taken_matrix(x_SK) && is_taken_matrix(w_NK) &&
                     is_taken_matrix(add_SN) && is_taken_matrix(out_SN) &&
                     (!bias_N.defined() || is_taken(bias_N));
  if (!takes) {
    return false;
  }
  const Shape shape{.has_bias = bias_N.defined(),
                    .n = w_NK.size(0),
                    .rows = x_SK.size(0),
                    .k = x_SK.size(1),
                    .w_pitch = w_NK.stride(0),
                    .x_pitch = x_SK.stride(0),
                    .add_pitch = add_SN.stride(0),
                    .out_pitch = out_SN.stride(0)};
  Description d(shape, shape.has_bias ? bias_N.const_data_ptr() : nullptr);
  const std::optional<Choice> choice = kernel_for(shape, d);
  if (!choice) {
    return false;
  }
  const float one = 1;
  const at::Tensor workspace = at::empty({static_cast<std::int64_t>(choice->workspaceSize)},
                                         x_SK.options().dtype(at::kByte));
  TORCH_CUDABLAS_CHECK(cublasLtMatmul(
      at::cuda::getCurrentCUDABlasLtHandle(), &d.operation, &one, w_NK.const_data_ptr(), &d.w,
      x_SK.const_data_ptr(), &d.x, &one, add_SN.const_data_ptr(), &d.add, out_SN.mutable_data_ptr(),
      &d.out, &choice->algo, workspace.mutable_data_ptr(), choice->workspaceSize,
      c10::cuda::getCurrentCUDAStream().stream()));
  return true;
}

}  // namespace longhaul::ops
