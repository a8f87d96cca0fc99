// Dropout on the input of LoRA adapters, some rows at a time: a masked copy of a whole long row would be as large as the
// activation itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "config/shapes.h"
#include "model/linear.h"

namespace longhaul::model {

/// Calls `use(rows, masked)` for consecutive rows of drop(x) [S, K], whose columns are numbered from `first_column` in the
/// mask, of at most config::kMaskedBytes at a time; without dropout once, with x itself. `masked` is overwritten afterwards.
void masked_rows(const at::Tensor& x_SK, const LoraDropout& dropout, std::int64_t first_column,
                 const std::function<void(config::Range rows, const at::Tensor& masked)>& use);

/// dx [S, K] += drop(du·A) for A [R, K].
void add_through_a(const at::Tensor& du_SR, const at::Tensor& a_RK, const LoraDropout& dropout,
                   const at::Tensor& dx_SK);

}  // namespace longhaul::model
