#include "model/decoder_layer.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "base/error.h"
#include "ops/room.h"
#include "ops/rows.h"

namespace longhaul::model {
namespace {

/// A buffer for the input, or for the gradient of the output, of a group of linear layers.
at::Tensor buffer_for(const Linear& linear, const at::Tensor& like, std::int64_t columns) {
  return ops::empty_with_room(like.size(0), columns, linear.room(), like.options());
}

at::Tensor rows_like(const at::Tensor& like, std::int64_t columns) {
  return at::empty({like.size(0), columns}, like.options());
}

bool keeps(const config::LayerPolicy& policy, config::Slot slot) {
  return policy.action(slot) != config::SlotAction::kRerun;
}

/// Drops what the policy re-runs. LSE goes with the attention output it belongs to.
void drop_slots(const config::LayerPolicy& policy, LayerSlots& slots) {
  if (!keeps(policy, config::Slot::kInput)) {
    slots.input.reset();
  }
  if (!keeps(policy, config::Slot::kQkv)) {
    slots.attention.qkv.reset();
  }
  if (!keeps(policy, config::Slot::kAttnOut)) {
    slots.attention.out.reset();
    slots.attention.lse.reset();
  }
  if (!keeps(policy, config::Slot::kResidual)) {
    slots.residual.reset();
  }
  if (!keeps(policy, config::Slot::kGateUp)) {
    slots.gate_up.reset();
  }
}

}  // namespace

DecoderLayer::DecoderLayer(const config::ModelConfig& model, Attention& attention,
                           std::int64_t layer)
    : model_(&model), attention_(&attention), layer_(layer) {}

at::Tensor DecoderLayer::norm_input(const at::Tensor& x, const NormWeight& norm,
                                    const Linear& reader, at::Tensor& rstd) const {
  at::Tensor normed = buffer_for(reader, x, x.size(1));
  rstd = ops::rms_norm(x, norm.weight, model_->rms_norm_eps, normed);
  return normed;
}

void DecoderLayer::norm_backward(const at::Tensor& dy, const at::Tensor& x, const NormWeight& norm,
                                 const at::Tensor& rstd, const at::Tensor& add,
                                 const at::Tensor& dx, GradSink& sink) const {
  at::Tensor weight_gradient;
  if (norm.param >= 0) {
    weight_gradient = sink.accumulator(norm.param);
  }
  ops::rms_norm_backward(dy, x, norm.weight, rstd, add, dx, weight_gradient);
  if (norm.param >= 0) {
    sink.finished(norm.param);
  }
}

void DecoderLayer::run_qkv(const LayerWeights& weights, const RowContext& context,
                           LayerSlots& slots) {
  at::Tensor rstd;
  const at::Tensor normed =
      norm_input(slots.input, weights.input_norm, *weights.attention_in, rstd);
  const at::Tensor qkv = rows_like(normed, weights.attention_in->out_features());
  weights.attention_in->forward(normed, context.local_dropout(layer_, LayerInput::kAttention), qkv,
                                slots.u_attention_in);
  attention_->load_qkv(qkv, weights.qk_norm, context, slots.attention);
}

void DecoderLayer::run_attention_out(const LayerWeights& weights, const RowContext& context,
                                     LayerSlots& slots) {
  const at::Tensor out = attention_->token_local_output(slots.attention);
  slots.residual = at::empty_like(slots.input);
  weights.attention_out->forward(out, context.local_dropout(layer_, LayerInput::kAttentionOut),
                                 slots.residual, slots.u_attention_out);
  slots.residual.add_(slots.input);
}

void DecoderLayer::run_gate_up(const LayerWeights& weights, const RowContext& context,
                               LayerSlots& slots) {
  at::Tensor rstd;
  const at::Tensor normed = norm_input(slots.residual, weights.post_norm, *weights.mlp_in, rstd);
  // The backward pass writes the gradient over it.
  slots.gate_up = buffer_for(*weights.mlp_in, normed, weights.mlp_in->out_features());
  weights.mlp_in->forward(normed, context.local_dropout(layer_, LayerInput::kMlp), slots.gate_up,
                          slots.u_mlp_in);
}

at::Tensor DecoderLayer::output(const LayerWeights& weights, const RowContext& context,
                                LayerSlots& slots) {
  const at::Tensor activated =
      buffer_for(*weights.mlp_down, slots.gate_up, slots.gate_up.size(1) / 2);
  ops::swiglu(slots.gate_up, activated);
  at::Tensor y = at::empty_like(slots.residual);
  weights.mlp_down->forward(activated, context.local_dropout(layer_, LayerInput::kMlpDown), y,
                            slots.u_mlp_down);
  y.add_(slots.residual);
  return y;
}

at::Tensor DecoderLayer::forward(const at::Tensor& x, const LayerWeights& weights,
                                 const RowContext& context, const config::LayerPolicy& policy,
                                 LayerSlots& slots) {
  slots.input = x;
  run_qkv(weights, context, slots);
  attention_->attend(weights.qk_norm, context, slots.attention);
  if (!keeps(policy, config::Slot::kQkv)) {
    slots.attention.qkv.reset();
  }
  run_attention_out(weights, context, slots);
  run_gate_up(weights, context, slots);
  at::Tensor y = output(weights, context, slots);
  drop_slots(policy, slots);
  return y;
}

at::Tensor DecoderLayer::forward_only(const at::Tensor& x, const LayerWeights& weights,
                                      const RowContext& context) {
  LayerSlots slots;
  slots.input = x;
  run_qkv(weights, context, slots);
  attention_->attend(weights.qk_norm, context, slots.attention);
  slots.attention.qkv.reset();
  run_attention_out(weights, context, slots);
  slots.attention = {};
  run_gate_up(weights, context, slots);
  return output(weights, context, slots);
}

void DecoderLayer::rerun(const LayerWeights& weights, const RowContext& context,
                         LayerSlots& slots) {
  LONGHAUL_ASSERT(slots.input.defined(), "a layer is re-run from its input");
  if (!slots.attention.qkv.defined()) {
    run_qkv(weights, context, slots);
  }
  if (!slots.attention.out.defined()) {
    attention_->attend(weights.qk_norm, context, slots.attention);
  }
  if (!slots.residual.defined()) {
    run_attention_out(weights, context, slots);
  }
  if (!slots.gate_up.defined()) {
    run_gate_up(weights, context, slots);
  }
}

at::Tensor DecoderLayer::mlp_backward(const at::Tensor& dy, const LayerWeights& weights,
                                      const RowContext& context, LayerSlots& slots,
                                      GradSink& sink) {
  const Linear& down = *weights.mlp_down;
  const LoraDropout down_dropout = context.local_dropout(layer_, LayerInput::kMlpDown);
  const at::Tensor du_down = down.lora_gradient(dy);
  const at::Tensor activated = rows_like(dy, down.in_features());
  if (down.needs_input()) {
    ops::swiglu(slots.gate_up, activated);
    down.lora_a_gradient(du_down, activated, down_dropout, 0, sink);
    down.base_gradient(dy, activated, sink);
  }
  down.output_side_gradients(dy, slots.u_mlp_down, sink);
  slots.u_mlp_down.reset();
  // The product's input is not needed any more: its buffer takes the gradient.
  down.input_gradient(dy, du_down, down_dropout, activated);
  ops::swiglu_backward(activated, slots.gate_up, slots.gate_up);

  const Linear& gate_up = *weights.mlp_in;
  const at::Tensor dgate_up = std::move(slots.gate_up);
  slots.gate_up.reset();
  const LoraDropout in_dropout = context.local_dropout(layer_, LayerInput::kMlp);
  at::Tensor rstd;
  const at::Tensor normed = norm_input(slots.residual, weights.post_norm, gate_up, rstd);
  const at::Tensor du = gate_up.lora_gradient(dgate_up);
  gate_up.lora_a_gradient(du, normed, in_dropout, 0, sink);
  gate_up.base_gradient(dgate_up, normed, sink);
  gate_up.output_side_gradients(dgate_up, slots.u_mlp_in, sink);
  slots.u_mlp_in.reset();
  gate_up.input_gradient(dgate_up, du, in_dropout, normed);
  norm_backward(normed, slots.residual, weights.post_norm, rstd, dy, normed, sink);
  return normed;
}

at::Tensor DecoderLayer::attention_out_backward(const at::Tensor& dr, const LayerWeights& weights,
                                                const RowContext& context, LayerSlots& slots,
                                                GradSink& sink) {
  const Linear& out = *weights.attention_out;
  const at::Tensor du = out.lora_gradient(dr);
  if (du.defined()) {
    // O exists head-local only: gather the narrow du instead of exchanging O, and let every rank
    // add the columns of d(A) that belong to its heads; the sum over ranks joins them.
    const at::Tensor du_row = attention_->gather_tokens(du);
    out.lora_a_gradient(du_row, slots.attention.out,
                        context.row_dropout(layer_, LayerInput::kAttentionOut),
                        attention_->output_columns().begin, sink);
  }
  if (out.base_trained()) {
    out.base_gradient(dr, attention_->token_local_output(slots.attention), sink);
  }
  out.output_side_gradients(dr, slots.u_attention_out, sink);
  slots.u_attention_out.reset();
  at::Tensor dout = rows_like(dr, out.in_features());
  out.input_gradient(dr, du, context.local_dropout(layer_, LayerInput::kAttentionOut), dout);
  return dout;
}

at::Tensor DecoderLayer::backward(const at::Tensor& dy, const LayerWeights& weights,
                                  const RowContext& context, LayerSlots& slots,
                                  InputGradient input_gradient, GradSink& sink) {
  const at::Tensor dr = mlp_backward(dy, weights, context, slots, sink);
  slots.residual.reset();
  at::Tensor dout = attention_out_backward(dr, weights, context, slots, sink);
  const at::Tensor dqkv =
      attention_->backward(dout, weights.qk_norm, context, slots.attention, sink);
  dout.reset();

  const Linear& in = *weights.attention_in;
  const LoraDropout dropout = context.local_dropout(layer_, LayerInput::kAttention);
  const at::Tensor du = in.lora_gradient(dqkv);
  at::Tensor rstd;
  const at::Tensor normed = norm_input(slots.input, weights.input_norm, in, rstd);
  in.lora_a_gradient(du, normed, dropout, 0, sink);
  in.base_gradient(dqkv, normed, sink);
  in.output_side_gradients(dqkv, slots.u_attention_in, sink);
  slots.u_attention_in.reset();
  const bool norm_trained = weights.input_norm.param >= 0;
  if (input_gradient == InputGradient::kNotNeeded && !norm_trained) {
    slots.input.reset();
    return {};
  }
  in.input_gradient(dqkv, du, dropout, normed);
  norm_backward(normed, slots.input, weights.input_norm, rstd, dr, normed, sink);
  slots.input.reset();
  return normed;
}

}  // namespace longhaul::model
