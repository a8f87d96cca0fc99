// Dropout on the input of LoRA adapters: in the products themselves where there are kernels for it
// (ops/masked_products.h), else some rows at a time, as a masked copy of a whole long row would be as large as the
// activation itself.
// Legend: S rows, K columns, R LoRA columns; columns of x are numbered from `first_column` in the mask, else from 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "config/shapes.h"
#include "model/linear.h"

namespace longhaul::model {

/// u [S, R] = drop(x)·Aᵀ for A [R, K].
void multiply_by_a(const at::Tensor& x_SK, const at::Tensor& a_RK, const LoraDropout& dropout,
                   const at::Tensor& u_SR);

/// Calls `add` with duᵀ·drop(x) as fp32 [R, K], or with several matrices whose sum that is.
void each_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK, const LoraDropout& dropout,
                     std::int64_t first_column,
                     const std::function<void(const at::Tensor& da_RK)>& add);

/// Calls `use(rows, masked)` for consecutive rows of drop(x) [S, K], whose columns are numbered from `first_column` in the
/// mask, of at most config::kMaskedBytes at a time; without dropout once, with x itself. `masked` is overwritten afterwards.
void masked_rows(const at::Tensor& x_SK, const LoraDropout& dropout, std::int64_t first_column,
                 const std::function<void(config::Range rows, const at::Tensor& masked)>& use);

/// dx [S, K] += drop(du·A) for A [R, K].
void add_through_a(const at::Tensor& du_SR, const at::Tensor& a_RK, const LoraDropout& dropout,
                   const at::Tensor& dx_SK);

}  // namespace longhaul::model
