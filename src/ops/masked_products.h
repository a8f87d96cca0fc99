// LoRA's narrow products of an input under dropout in one pass over it. Only GPUs in bfloat16 have kernels for them, and
// these take ranks of a multiple of 8 up to 64 and widths of a multiple of 64: every call says whether it did its work.
// Legend: S rows, K columns, R LoRA columns. Matrices may be row-pitched views.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/rows.h"

namespace longhaul::ops {

/// u [S, R] = drop(x [S, K])·a [R, K]ᵀ, summed in fp32. False, and nothing is written, where there is no such kernel.
[[nodiscard]] bool masked_product(const at::Tensor& x_SK, const at::Tensor& a_RK,
                                  const DropoutKeys& keys, const at::Tensor& u_SR);

/// da (fp32) [R, K] += du [S, R]ᵀ·drop(x [S, K]), whose columns are numbered from `first_column` in the mask. As above.
[[nodiscard]] bool masked_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK,
                                     const DropoutKeys& keys, std::int64_t first_column,
                                     const at::Tensor& da_RK);

/// dx [S, K] += drop(du [S, R]·a [R, K]). As above.
[[nodiscard]] bool masked_x_gradient(const at::Tensor& du_SR, const at::Tensor& a_RK,
                                     const DropoutKeys& keys, const at::Tensor& dx_SK);

}  // namespace longhaul::ops
