#include "ops/masked_products.h"

#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "config/kernel_memory.h"
#include "ops/backend.h"
#include "ops/step_clock.h"

namespace longhaul::ops {
namespace {

static_assert(kernels::kMostMaskedRank == config::kMostMaskedRank);

using Kernel = void (*)(const kernels::MaskedProduct&, kernels::Stream);

void check(const at::Tensor& matrix, const at::Tensor& like, std::int64_t rows,
           std::int64_t columns) {
  LONGHAUL_ASSERT(matrix.dim() == 2 && matrix.size(0) == rows && matrix.size(1) == columns,
                  "x is [S, K], u [S, R] and a [R, K]");
  LONGHAUL_ASSERT(matrix.scalar_type() == like.scalar_type() && matrix.device() == like.device(),
                  "x, u and a are of one type and device");
}

/// The call, or nothing where there is no kernel for it. `a` undefined: a matrix of rows without gaps, still to be made.
std::optional<kernels::MaskedProduct> call_for(const at::Tensor& x, const at::Tensor& u,
                                               const at::Tensor& a, const DropoutKeys& keys,
                                               std::int64_t first_column) {
  check(u, x, x.size(0), u.size(1));
  if (a.defined()) {
    check(a, x, u.size(1), x.size(1));
  }
  LONGHAUL_ASSERT(static_cast<std::int64_t>(keys.row_keys.size()) == x.size(0), "one key per row");
  LONGHAUL_ASSERT(keys.probability >= 0 && keys.probability <= 1, "a probability is in [0, 1]");
  const bool has_kernels = backend_of(x).kernels->masked_product != nullptr;
  const bool has_rows = x.stride(1) == 1 && u.stride(1) == 1 && (!a.defined() || a.stride(1) == 1);
  if (!has_kernels || x.scalar_type() != at::kBFloat16 || !has_rows) {
    return std::nullopt;
  }
  const kernels::MaskedProduct call{.x = x.data_ptr(),
                                    .x_pitch = x.stride(0),
                                    .u = u.data_ptr(),
                                    .u_pitch = u.stride(0),
                                    .a = a.defined() ? a.data_ptr() : nullptr,
                                    .a_pitch = a.defined() ? a.stride(0) : x.size(1),
                                    .seed_key = keys.seed_key,
                                    .first_column = first_column,
                                    .rows = x.size(0),
                                    .width = x.size(1),
                                    .rank = u.size(1),
                                    .probability = keys.probability};
  return kernels::takes_masked_product(call) ? std::optional(call) : std::nullopt;
}

/// `like` lies on the device.
void run(Kernel kernel, kernels::MaskedProduct call, const DropoutKeys& keys,
         const at::Tensor& like) {
  const OpTimer timer(OpKind::kProducts);
  const at::Tensor row_keys = keys_on_device(keys, like.device());
  call.row_keys = static_cast<const std::uint64_t*>(row_keys.const_data_ptr());
  kernel(call, backend_of(like).stream());
}

}  // namespace

bool masked_product(const at::Tensor& x_SK, const at::Tensor& a_RK, const DropoutKeys& keys,
                    const at::Tensor& u_SR) {
  const auto call = call_for(x_SK, u_SR, a_RK, keys, 0);
  if (call) {
    run(backend_of(x_SK).kernels->masked_product, *call, keys, x_SK);
  }
  return call.has_value();
}

std::optional<at::Tensor> masked_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK,
                                            const DropoutKeys& keys, std::int64_t first_column) {
  auto call = call_for(x_SK, du_SR, at::Tensor(), keys, first_column);
  if (!call) {
    return std::nullopt;
  }
  const at::Tensor da = at::zeros({du_SR.size(1), x_SK.size(1)}, x_SK.options().dtype(at::kFloat));
  call->a = da.data_ptr();
  run(backend_of(x_SK).kernels->masked_a_gradient, *call, keys, x_SK);
  return da;
}

bool masked_x_gradient(const at::Tensor& du_SR, const at::Tensor& a_RK, const DropoutKeys& keys,
                       const at::Tensor& dx_SK) {
  const auto call = call_for(dx_SK, du_SR, a_RK, keys, 0);
  if (call) {
    run(backend_of(dx_SK).kernels->masked_x_gradient, *call, keys, dx_SK);
  }
  return call.has_value();
}

}  // namespace longhaul::ops
