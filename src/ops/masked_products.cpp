#include "ops/masked_products.h"

#include "base/error.h"
#include "ops/backend.h"
#include "ops/step_clock.h"

namespace longhaul::ops {
namespace {

using Kernel = void (*)(const kernels::MaskedProduct&, kernels::Stream);

void check_matrix(const at::Tensor& matrix, std::int64_t rows, std::int64_t columns) {
  LONGHAUL_ASSERT(matrix.dim() == 2 && matrix.size(0) == rows && matrix.size(1) == columns,
                  "x is [S, K], u [S, R] and a [R, K]");
}

bool has_unit_columns(const at::Tensor& matrix) {
  return matrix.size(1) <= 1 || matrix.stride(1) == 1;
}

bool run(Kernel kernel, const at::Tensor& x, const at::Tensor& u, const at::Tensor& a,
         const DropoutKeys& keys, std::int64_t first_column) {
  check_matrix(u, x.size(0), u.size(1));
  check_matrix(a, u.size(1), x.size(1));
  LONGHAUL_ASSERT(static_cast<std::int64_t>(keys.row_keys.size()) == x.size(0), "one key per row");
  if (kernel == nullptr || x.scalar_type() != at::kBFloat16 || !has_unit_columns(x) ||
      !has_unit_columns(u) || !has_unit_columns(a)) {
    return false;
  }
  kernels::MaskedProduct call{.x = x.data_ptr(),
                              .x_pitch = x.stride(0),
                              .u = u.data_ptr(),
                              .u_pitch = u.stride(0),
                              .a = a.data_ptr(),
                              .a_pitch = a.stride(0),
                              .seed_key = keys.seed_key,
                              .first_column = first_column,
                              .rows = x.size(0),
                              .width = x.size(1),
                              .rank = u.size(1),
                              .probability = keys.probability};
  if (!kernels::takes_masked_product(call)) {
    return false;
  }
  const OpTimer timer(OpKind::kProducts);
  const at::Tensor row_keys =
      keys.on_device.defined() ? keys.on_device : keys_on_device(keys.row_keys, x.device());
  call.row_keys = static_cast<const std::uint64_t*>(row_keys.const_data_ptr());
  kernel(call, backend_of(x).stream());
  return true;
}

}  // namespace

bool masked_product(const at::Tensor& x_SK, const at::Tensor& a_RK, const DropoutKeys& keys,
                    const at::Tensor& u_SR) {
  return run(backend_of(x_SK).kernels->masked_product, x_SK, u_SR, a_RK, keys, 0);
}

bool masked_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK, const DropoutKeys& keys,
                       std::int64_t first_column, const at::Tensor& da_RK) {
  LONGHAUL_ASSERT(da_RK.scalar_type() == at::kFloat, "d(A) is float32");
  return run(backend_of(x_SK).kernels->masked_a_gradient, x_SK, du_SR, da_RK, keys, first_column);
}

bool masked_x_gradient(const at::Tensor& du_SR, const at::Tensor& a_RK, const DropoutKeys& keys,
                       const at::Tensor& dx_SK) {
  return run(backend_of(dx_SK).kernels->masked_x_gradient, dx_SK, du_SR, a_RK, keys, 0);
}

}  // namespace longhaul::ops
