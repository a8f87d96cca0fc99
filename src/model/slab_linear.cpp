#include "model/slab_linear.h"

#include <ATen/ops/constant_pad_nd.h>

#include "base/error.h"
#include "model/lora_mask.h"
#include "model/row_parts.h"
#include "ops/matmul.h"
#include "ops/room.h"

namespace longhaul::model {

SlabLinear::SlabLinear(Slab slab, at::Tensor bias, double lora_scale,
                       std::vector<LinearMember> members)
    : slab_(std::move(slab)),
      bias_(std::move(bias)),
      lora_scale_(lora_scale),
      members_(std::move(members)) {
  LONGHAUL_ASSERT(!members_.empty() && members_.back().outputs.end == slab_.outputs,
                  "members cover the group's outputs");
}

std::int64_t SlabLinear::lora_columns() const { return members_.back().lora_columns.end; }

void SlabLinear::forward(const at::Tensor& x_SK, const LoraDropout& dropout,
                         const at::Tensor& add_SN, const at::Tensor& y_SN, at::Tensor& u_SR) const {
  const at::Tensor wide = ops::with_room(x_SK, slab_.room);
  const at::Tensor u = wide.narrow(1, slab_.inputs, slab_.room);
  if (u_SR.defined()) {
    u.narrow(1, 0, lora_columns()).copy_(u_SR);
    u.narrow(1, lora_columns(), slab_.room - lora_columns()).zero_();
  } else {
    multiply_by_a(x_SK, a(), dropout, u);
    u_SR = u.narrow(1, 0, lora_columns()).clone();  // a view would keep all of x alive
  }
  ops::linear_onto(wide, slab_.matrix.narrow(0, 0, slab_.outputs), bias_, add_SN, y_SN);
}

at::Tensor SlabLinear::a() const {
  return slab_.matrix.narrow(0, slab_.outputs, slab_.room).narrow(1, 0, slab_.inputs);
}

at::Tensor SlabLinear::lora_input(const at::Tensor& x_SK, const LoraDropout& dropout) const {
  const at::Tensor u = ops::with_room(x_SK, slab_.room).narrow(1, slab_.inputs, slab_.room);
  multiply_by_a(x_SK, a(), dropout, u);
  return u.narrow(1, 0, lora_columns()).clone();
}

at::Tensor SlabLinear::lora_gradient(const at::Tensor& dy_SN) const {
  const at::Tensor wide = ops::with_room(dy_SN, slab_.room);
  const at::Tensor du = wide.narrow(1, slab_.outputs, slab_.room);
  const at::Tensor b = slab_.matrix.narrow(0, 0, slab_.outputs).narrow(1, slab_.inputs, slab_.room);
  ops::product(dy_SN, b, 1, du);
  return du.narrow(1, 0, lora_columns());
}

void SlabLinear::input_gradient(const at::Tensor& dy_SN, const at::Tensor& du_SR,
                                const LoraDropout& dropout, const at::Tensor& dx_SK) const {
  // du stands behind dy, or behind the copy of it that lora_gradient made.
  const at::Tensor wide =
      du_SR.as_strided({du_SR.size(0), slab_.outputs + slab_.room}, {du_SR.stride(0), 1},
                       du_SR.storage_offset() - slab_.outputs);
  if (dropout) {  // the mask is on what comes through A alone
    ops::product(dy_SN, slab_.matrix.narrow(0, 0, slab_.outputs).narrow(1, 0, slab_.inputs), 1,
                 dx_SK);
    add_through_a(wide.narrow(1, slab_.outputs, slab_.room), a(), dropout, dx_SK);
    return;
  }
  ops::product(wide, slab_.matrix.narrow(1, 0, slab_.inputs), 1, dx_SK);
}

void SlabLinear::output_side_gradients(const at::Tensor& dy_SN, const at::Tensor& u_SR,
                                       GradSink& sink) const {
  add_output_side_gradients(members_, lora_scale_, dy_SN, u_SR, sink);
}

void SlabLinear::lora_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK,
                                 const LoraDropout& dropout, std::int64_t first_column,
                                 GradSink& sink) const {
  // Products under dropout like whole tiles of columns.
  const bool pads = dropout && du_SR.size(1) < slab_.room;
  const at::Tensor du = pads ? at::constant_pad_nd(du_SR, {0, slab_.room - du_SR.size(1)}) : du_SR;
  // One product for all members, so that x is read once.
  each_a_gradient(du, x_SK, dropout, first_column, [&](const at::Tensor& all) {
    for (const LinearMember& member : members_) {
      if (member.lora_columns.size() > 0) {
        sink.accumulator(member.lora_a_param)
            .narrow(1, first_column, all.size(1))
            .add_(all.narrow(0, member.lora_columns.begin, member.lora_columns.size()));
      }
    }
  });
  finish_lora_a(members_, sink);
}

void SlabLinear::base_gradient(const at::Tensor& /*dy_SN*/, const at::Tensor& /*x_SK*/,
                               GradSink& /*sink*/) const {}

}  // namespace longhaul::model
