#include "model/lora_mask.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "config/kernel_memory.h"
#include "model/row_parts.h"
#include "ops/masked_products.h"
#include "ops/matmul.h"

namespace longhaul::model {
namespace {

/// Consecutive rows of a [·, columns] tensor of `like`'s type, config::kMaskedBytes at most.
template <class Use>
void for_rows(const at::Tensor& like, std::int64_t columns, const Use& use) {
  const std::int64_t row_bytes = columns * static_cast<std::int64_t>(like.element_size());
  const std::int64_t step =
      std::max<std::int64_t>(1, config::kMaskedBytes / std::max<std::int64_t>(1, row_bytes));
  const std::int64_t count = like.size(0);
  const at::Tensor buffer = at::empty({std::min(step, count), columns}, like.options());
  std::int64_t begin = 0;
  do {  // no rows are one piece without rows
    const config::Range rows{begin, std::min(begin + step, count)};
    use(rows, buffer.narrow(0, 0, rows.size()));
    begin = rows.end;
  } while (begin < count);
}

}  // namespace

void masked_rows(const at::Tensor& x_SK, const LoraDropout& dropout, std::int64_t first_column,
                 const std::function<void(config::Range rows, const at::Tensor& masked)>& use) {
  if (!dropout) {
    use({0, x_SK.size(0)}, x_SK);
    return;
  }
  for_rows(x_SK, x_SK.size(1), [&](config::Range rows, const at::Tensor& masked) {
    ops::dropout(of_rows(x_SK, rows), masked, *of_rows(dropout, rows), first_column,
                 ops::DropoutOutput::kWrite);
    use(rows, masked);
  });
}

void multiply_by_a(const at::Tensor& x_SK, const at::Tensor& a_RK, const LoraDropout& dropout,
                   const at::Tensor& u_SR) {
  if (dropout && ops::masked_product(x_SK, a_RK, *dropout, u_SR)) {
    return;
  }
  masked_rows(x_SK, dropout, 0, [&](config::Range rows, const at::Tensor& x) {
    ops::linear(x, a_RK, at::Tensor(), of_rows(u_SR, rows));
  });
}

void each_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK, const LoraDropout& dropout,
                     std::int64_t first_column,
                     const std::function<void(const at::Tensor& da_RK)>& add) {
  if (dropout) {
    if (const auto da = ops::masked_a_gradient(du_SR, x_SK, *dropout, first_column)) {
      add(*da);
      return;
    }
  }
  masked_rows(x_SK, dropout, first_column, [&](config::Range rows, const at::Tensor& x) {
    add(ops::transposed_product(of_rows(du_SR, rows), x));
  });
}

void add_through_a(const at::Tensor& du_SR, const at::Tensor& a_RK, const LoraDropout& dropout,
                   const at::Tensor& dx_SK) {
  if (!dropout) {
    ops::product_accumulate(du_SR, a_RK, 1, dx_SK);
    return;
  }
  if (ops::masked_x_gradient(du_SR, a_RK, *dropout, dx_SK)) {
    return;
  }
  for_rows(dx_SK, dx_SK.size(1), [&](config::Range rows, const at::Tensor& through_a) {
    ops::product(of_rows(du_SR, rows), a_RK, 1, through_a);
    ops::dropout(through_a, of_rows(dx_SK, rows), *of_rows(dropout, rows), 0,
                 ops::DropoutOutput::kAccumulate);
  });
}

}  // namespace longhaul::model
