// Matrix products in the layouts of a training step, on libtorch's BLAS.
// Legend: S tokens, K input columns, N output columns. Matrices may be row-pitched views.
#pragma once

#include <ATen/core/Tensor.h>

namespace longhaul::ops {

/// y [S, N] = x [S, K] · w[N, K]ᵀ (+ bias [N] when defined).
void linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const at::Tensor& y);

/// y [S, N] = add [S, N] + x [S, K] · w[N, K]ᵀ (+ bias [N] when defined); `add` undefined: as linear(). A device whose product adds in
/// its epilogue rounds once, others round the product first. InternalError for other shapes, or when `add` is `y`.
void linear_onto(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                 const at::Tensor& add, const at::Tensor& y);

/// y [S, N] += alpha · x [S, K] · w [N, K]ᵀ.
void linear_accumulate(const at::Tensor& x, const at::Tensor& w, double alpha, const at::Tensor& y);

/// out [S, K] = alpha · dy [S, N] · w [N, K].
void product(const at::Tensor& dy, const at::Tensor& w, double alpha, const at::Tensor& out);

/// out [S, K] += alpha · dy [S, N] · w [N, K].
void product_accumulate(const at::Tensor& dy, const at::Tensor& w, double alpha,
                        const at::Tensor& out);

/// out (fp32) [N, K] += alpha · dy [S, N]ᵀ · x [S, K], summed in fp32 whatever the inputs' type.
void weight_gradient(const at::Tensor& dy, const at::Tensor& x, double alpha,
                     const at::Tensor& out);

/// dy [S, N]ᵀ · x [S, K] as a new fp32 [N, K], summed in fp32 whatever the inputs' type.
at::Tensor transposed_product(const at::Tensor& dy, const at::Tensor& x);

/// out (fp32) [N] += column sums of dy [S, N].
void bias_gradient(const at::Tensor& dy, const at::Tensor& out);

}  // namespace longhaul::ops
