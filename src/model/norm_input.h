// The norm in front of a group of linear layers, and the buffers that such groups like.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/grad_sink.h"
#include "model/linear.h"
#include "model/weight_store.h"

namespace longhaul::model {

/// A buffer of like's rows for the input, or for the gradient of the output, of `linear`.
at::Tensor buffer_for(const Linear& linear, const at::Tensor& like, std::int64_t columns);

/// norm(x) in a buffer for `reader`, and its rstd.
at::Tensor norm_input(const at::Tensor& x, const NormWeight& norm, double eps, const Linear& reader,
                      at::Tensor& rstd);

/// d(x) (+ `add`) into `dx`, which may be dy; the weight's gradient goes to the sink.
void norm_backward(const at::Tensor& dy, const at::Tensor& x, const NormWeight& norm,
                   const at::Tensor& rstd, const at::Tensor& add, const at::Tensor& dx,
                   GradSink& sink);

}  // namespace longhaul::model
