#include "model/row_parts.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace longhaul::model {

LoraDropout of_rows(LoraDropout dropout, config::Range rows) {
  if (dropout) {
    dropout->row_keys = dropout->row_keys.subspan(static_cast<std::size_t>(rows.begin),
                                                  static_cast<std::size_t>(rows.size()));
    dropout->on_device = of_rows(dropout->on_device, rows);
  }
  return dropout;
}

at::Tensor of_rows(const at::Tensor& matrix, config::Range rows) {
  return matrix.defined() ? matrix.narrow(0, rows.begin, rows.size()) : at::Tensor();
}

void WholeU::forward(const Linear& linear, const at::Tensor& x, const LoraDropout& dropout,
                     const at::Tensor& add, const at::Tensor& y, config::Range rows) {
  at::Tensor u = given_ ? of_rows(*u_, rows) : at::Tensor();
  linear.forward(x, dropout, add, y, u);
  if (given_ || !u.defined()) {
    return;
  }
  if (rows.size() == num_rows_) {
    *u_ = std::move(u);
    return;
  }
  if (!u_->defined()) {
    *u_ = at::empty({num_rows_, u.size(1)}, u.options());
  }
  of_rows(*u_, rows).copy_(u);
}

}  // namespace longhaul::model
