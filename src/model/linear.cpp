#include "model/linear.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "model/lora_mask.h"
#include "model/row_parts.h"
#include "ops/matmul.h"

namespace longhaul::model {
namespace {

at::Tensor columns(const at::Tensor& matrix, config::Range range) {
  return matrix.narrow(1, range.begin, range.size());
}

}  // namespace

void add_output_side_gradients(std::span<const LinearMember> members, double lora_scale,
                               const at::Tensor& dy_SN, const at::Tensor& u_SR, GradSink& sink) {
  for (const LinearMember& member : members) {
    const at::Tensor dy = columns(dy_SN, member.outputs);
    if (member.lora_columns.size() > 0) {
      ops::weight_gradient(dy, columns(u_SR, member.lora_columns), lora_scale,
                           sink.accumulator(member.lora_b_param));
      sink.finished(member.lora_b_param);
    }
    if (member.bias_trained) {
      ops::bias_gradient(dy, sink.accumulator(member.bias));
      sink.finished(member.bias);
    }
  }
}

void finish_lora_a(std::span<const LinearMember> members, GradSink& sink) {
  for (const LinearMember& member : members) {
    if (member.lora_columns.size() > 0) {
      sink.finished(member.lora_a_param);
    }
  }
}

SeparateLinear::SeparateLinear(at::Tensor w, at::Tensor bias, at::Tensor lora_a, double lora_scale,
                               std::vector<LinearMember> members)
    : w_(std::move(w)),
      bias_(std::move(bias)),
      lora_a_(std::move(lora_a)),
      lora_scale_(lora_scale),
      members_(std::move(members)) {
  LONGHAUL_ASSERT(!members_.empty() && members_.back().outputs.end == w_.size(0),
                  "members cover the group's outputs");
}

bool SeparateLinear::trained() const {
  return lora_a_.defined() || std::any_of(members_.begin(), members_.end(), [](const auto& member) {
           return member.weight_trained || member.bias_trained;
         });
}

bool SeparateLinear::base_trained() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& member) { return member.weight_trained; });
}

bool SeparateLinear::needs_input() const { return lora_a_.defined() || base_trained(); }

void SeparateLinear::forward(const at::Tensor& x_SK, const LoraDropout& dropout,
                             const at::Tensor& add_SN, const at::Tensor& y_SN,
                             at::Tensor& u_SR) const {
  ops::linear_onto(x_SK, w_, bias_, add_SN, y_SN);
  if (!lora_a_.defined()) {
    return;
  }
  if (!u_SR.defined()) {
    u_SR = lora_input(x_SK, dropout);
  }
  for (const LinearMember& member : members_) {
    if (member.lora_columns.size() > 0) {
      ops::linear_accumulate(columns(u_SR, member.lora_columns), member.lora_b, lora_scale_,
                             columns(y_SN, member.outputs));
    }
  }
}

at::Tensor SeparateLinear::lora_input(const at::Tensor& x_SK, const LoraDropout& dropout) const {
  if (!lora_a_.defined()) {
    return {};
  }
  at::Tensor u = at::empty({x_SK.size(0), lora_columns()}, x_SK.options());
  multiply_by_a(x_SK, lora_a_, dropout, u);
  return u;
}

at::Tensor SeparateLinear::lora_gradient(const at::Tensor& dy_SN) const {
  if (!lora_a_.defined()) {
    return {};
  }
  at::Tensor du = at::empty({dy_SN.size(0), lora_columns()}, dy_SN.options());
  for (const LinearMember& member : members_) {
    if (member.lora_columns.size() > 0) {
      ops::product(columns(dy_SN, member.outputs), member.lora_b, lora_scale_,
                   columns(du, member.lora_columns));
    }
  }
  return du;
}

void SeparateLinear::input_gradient(const at::Tensor& dy_SN, const at::Tensor& du_SR,
                                    const LoraDropout& dropout, const at::Tensor& dx_SK) const {
  ops::product(dy_SN, w_, 1, dx_SK);
  if (du_SR.defined()) {
    add_through_a(du_SR, lora_a_, dropout, dx_SK);
  }
}

void SeparateLinear::output_side_gradients(const at::Tensor& dy_SN, const at::Tensor& u_SR,
                                           GradSink& sink) const {
  add_output_side_gradients(members_, lora_scale_, dy_SN, u_SR, sink);
}

void SeparateLinear::lora_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK,
                                     const LoraDropout& dropout, std::int64_t first_column,
                                     GradSink& sink) const {
  if (!du_SR.defined()) {
    return;
  }
  masked_rows(x_SK, dropout, first_column, [&](config::Range rows, const at::Tensor& x) {
    for (const LinearMember& member : members_) {
      if (member.lora_columns.size() > 0) {
        const at::Tensor target =
            sink.accumulator(member.lora_a_param).narrow(1, first_column, x.size(1));
        ops::weight_gradient(columns(of_rows(du_SR, rows), member.lora_columns), x, 1, target);
      }
    }
  });
  finish_lora_a(members_, sink);
}

void SeparateLinear::base_gradient(const at::Tensor& dy_SN, const at::Tensor& x_SK,
                                   GradSink& sink) const {
  for (const LinearMember& member : members_) {
    if (member.weight_trained) {
      ops::weight_gradient(columns(dy_SN, member.outputs), x_SK, 1,
                           sink.accumulator(member.weight));
      sink.finished(member.weight);
    }
  }
}

}  // namespace longhaul::model
