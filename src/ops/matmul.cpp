#include "ops/matmul.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "base/error.h"
#include "ops/backend.h"
#include "ops/step_clock.h"

namespace longhaul::ops {

void linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const at::Tensor& y) {
  const OpTimer timer(OpKind::kProducts);
  at::Tensor out = y;
  if (bias.defined()) {
    at::addmm_out(out, bias, x, w.t());
  } else {
    at::mm_out(out, x, w.t());
  }
}

void linear_onto(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                 const at::Tensor& add, const at::Tensor& y) {
  if (!add.defined()) {
    linear(x, w, bias, y);
    return;
  }
  LONGHAUL_ASSERT(x.dim() == 2 && w.dim() == 2 && x.size(1) == w.size(1), "x is [S, K], w [N, K]");
  LONGHAUL_ASSERT(y.dim() == 2 && y.size(0) == x.size(0) && y.size(1) == w.size(0) &&
                      add.sizes() == y.sizes() && !add.is_same(y),
                  "add and y are two matrices [S, N]");
  LONGHAUL_ASSERT(!bias.defined() || (bias.dim() == 1 && bias.size(0) == w.size(0)),
                  "a bias is [N]");
  if (const auto device_linear_onto = backend_of(x).linear_onto; device_linear_onto != nullptr) {
    const OpTimer timer(OpKind::kProducts);
    if (device_linear_onto(x, w, bias, add, y)) {
      return;
    }
  }
  linear(x, w, bias, y);
  const OpTimer timer(OpKind::kElementwise);
  at::Tensor out = y;
  out.add_(add);
}

void linear_accumulate(const at::Tensor& x, const at::Tensor& w, double alpha,
                       const at::Tensor& y) {
  const OpTimer timer(OpKind::kProducts);
  at::Tensor out = y;
  at::addmm_out(out, out, x, w.t(), /*beta=*/1, alpha);
}

void product(const at::Tensor& dy, const at::Tensor& w, double alpha, const at::Tensor& out) {
  const OpTimer timer(OpKind::kProducts);
  at::Tensor result = out;
  if (alpha == 1) {
    at::mm_out(result, dy, w);
  } else {
    at::addmm_out(result, result, dy, w, /*beta=*/0, alpha);
  }
}

void product_accumulate(const at::Tensor& dy, const at::Tensor& w, double alpha,
                        const at::Tensor& out) {
  const OpTimer timer(OpKind::kProducts);
  at::Tensor result = out;
  at::addmm_out(result, result, dy, w, /*beta=*/1, alpha);
}

at::Tensor transposed_product(const at::Tensor& dy, const at::Tensor& x) {
  const OpTimer timer(OpKind::kProducts);
  if (dy.is_cuda() && dy.scalar_type() != at::kFloat) {
    // The GPU's product of 16-bit operands sums and delivers fp32 by itself.
    return at::mm(dy.t(), x, at::kFloat);
  }
  const at::Tensor left = dy.to(at::kFloat);  // no copy when it is fp32 already
  return at::mm(left.t(), x.to(at::kFloat));
}

void weight_gradient(const at::Tensor& dy, const at::Tensor& x, double alpha,
                     const at::Tensor& out) {
  const OpTimer timer(OpKind::kProducts);
  if (dy.size(0) == 0) {
    return;
  }
  at::Tensor result = out;
  if (dy.is_cuda() && dy.scalar_type() != at::kFloat) {
    result.add_(transposed_product(dy, x), alpha);
    return;
  }
  const at::Tensor left = dy.to(at::kFloat);
  const at::Tensor right = x.to(at::kFloat);
  at::addmm_out(result, result, left.t(), right, /*beta=*/1, alpha);
}

void bias_gradient(const at::Tensor& dy, const at::Tensor& out) {
  const OpTimer timer(OpKind::kElementwise);
  at::Tensor result = out;
  result.add_(at::sum(dy, {0}, /*keepdim=*/false, at::kFloat));
}

}  // namespace longhaul::ops
