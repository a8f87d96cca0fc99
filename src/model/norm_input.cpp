#include "model/norm_input.h"

#include "ops/room.h"
#include "ops/rows.h"

namespace longhaul::model {

at::Tensor buffer_for(const Linear& linear, const at::Tensor& like, std::int64_t columns) {
  return ops::empty_with_room(like.size(0), columns, linear.room(), like.options());
}

at::Tensor norm_input(const at::Tensor& x, const NormWeight& norm, double eps, const Linear& reader,
                      at::Tensor& rstd) {
  at::Tensor normed = buffer_for(reader, x, x.size(1));
  rstd = ops::rms_norm(x, norm.weight, eps, normed);
  return normed;
}

void norm_backward(const at::Tensor& dy, const at::Tensor& x, const NormWeight& norm,
                   const at::Tensor& rstd, const at::Tensor& add, const at::Tensor& dx,
                   GradSink& sink) {
  at::Tensor weight_gradient;
  if (norm.param >= 0) {
    weight_gradient = sink.accumulator(norm.param);
  }
  ops::rms_norm_backward(dy, x, norm.weight, rstd, add, dx, weight_gradient);
  if (norm.param >= 0) {
    sink.finished(norm.param);
  }
}

}  // namespace longhaul::model
