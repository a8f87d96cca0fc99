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

/// The call for x and u, or nothing where there is no kernel for it; a is still to come.
std::optional<kernels::MaskedProduct> call_for(const at::Tensor& x, const at::Tensor& u,
                                               const DropoutKeys& keys, std::int64_t first_column) {
  check(u, x, x.size(0), u.size(1));
  LONGHAUL_ASSERT(static_cast<std::int64_t>(keys.row_keys.size()) == x.size(0), "one key per row");
  LONGHAUL_ASSERT(keys.probability >= 0 && keys.probability <= 1, "a probability is in [0, 1]");
  const bool has_kernels = backend_of(x).kernels->masked_product != nullptr;
  if (!has_kernels || x.scalar_type() != at::kBFloat16 || x.stride(1) != 1 || u.stride(1) != 1) {
    return std::nullopt;
  }
  return kernels::MaskedProduct{.x = x.data_ptr(),
                                .x_pitch = x.stride(0),
                                .u = u.data_ptr(),
                                .u_pitch = u.stride(0),
                                .seed_key = keys.seed_key,
                                .first_column = first_column,
                                .rows = x.size(0),
                                .width = x.size(1),
                                .rank = u.size(1),
                                .probability = keys.probability};
}

/// Whether `kernel` has been given the call with `a`.
bool run(Kernel kernel, kernels::MaskedProduct call, const at::Tensor& a, const DropoutKeys& keys) {
  call.a = a.data_ptr();
  call.a_pitch = a.stride(0);
  if (a.stride(1) != 1 || !kernels::takes_masked_product(call)) {
    return false;
  }
  const OpTimer timer(OpKind::kProducts);
  const at::Tensor row_keys =
      keys.on_device.defined() ? keys.on_device : keys_on_device(keys.row_keys, a.device());
  call.row_keys = static_cast<const std::uint64_t*>(row_keys.const_data_ptr());
  kernel(call, backend_of(a).stream());
  return true;
}

}  // namespace

bool masked_product(const at::Tensor& x_SK, const at::Tensor& a_RK, const DropoutKeys& keys,
                    const at::Tensor& u_SR) {
  check(a_RK, x_SK, u_SR.size(1), x_SK.size(1));
  const auto call = call_for(x_SK, u_SR, keys, 0);
  return call && run(backend_of(x_SK).kernels->masked_product, *call, a_RK, keys);
}

std::optional<at::Tensor> masked_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK,
                                            const DropoutKeys& keys, std::int64_t first_column) {
  auto call = call_for(x_SK, du_SR, keys, first_column);
  if (call) {
    call->a_pitch = call->width;
  }
  if (!call || !kernels::takes_masked_product(*call)) {
    return std::nullopt;
  }
  const at::Tensor da = at::zeros({du_SR.size(1), x_SK.size(1)}, x_SK.options().dtype(at::kFloat));
  const bool done = run(backend_of(x_SK).kernels->masked_a_gradient, *call, da, keys);
  LONGHAUL_ASSERT(done, "a fresh matrix lies on a border");
  return da;
}

bool masked_x_gradient(const at::Tensor& du_SR, const at::Tensor& a_RK, const DropoutKeys& keys,
                       const at::Tensor& dx_SK) {
  check(a_RK, dx_SK, du_SR.size(1), dx_SK.size(1));
  const auto call = call_for(dx_SK, du_SR, keys, 0);
  return call && run(backend_of(dx_SK).kernels->masked_x_gradient, *call, a_RK, keys);
}

}  // namespace longhaul::ops
