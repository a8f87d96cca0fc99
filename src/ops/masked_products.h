// LoRA's narrow products of an input under dropout in one pass over it. Only GPUs in bfloat16 have kernels for them, for
// widths of a multiple of 64, ranks of a multiple of 8 up to 64, even first columns and rows on 16-byte borders
// (kernels::takes_masked_product): every call says whether it did its work.
// Legend: S rows, K columns, R LoRA columns. Matrices may be row-pitched views.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "ops/rows.h"

namespace longhaul::ops {

/// u [S, R] = drop(x [S, K])·a [R, K]ᵀ, summed in fp32. False, and nothing is written, where there is no such kernel.
[[nodiscard]] bool masked_product(const at::Tensor& x_SK, const at::Tensor& a_RK,
                                  const DropoutKeys& keys, const at::Tensor& u_SR);

/// du [S, R]ᵀ·drop(x [S, K]) as fp32 [R, K]; columns of x are numbered from `first_column` in the mask. Nothing where there
/// is no such kernel.
[[nodiscard]] std::optional<at::Tensor> masked_a_gradient(const at::Tensor& du_SR,
                                                          const at::Tensor& x_SK,
                                                          const DropoutKeys& keys,
                                                          std::int64_t first_column);

/// dx [S, K] += drop(du [S, R]·a [R, K]). False, and nothing is written, where there is no such kernel.
[[nodiscard]] bool masked_x_gradient(const at::Tensor& du_SR, const at::Tensor& a_RK,
                                     const DropoutKeys& keys, const at::Tensor& dx_SK);

}  // namespace longhaul::ops
