#include "model/decoder_layer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "base/error.h"
#include "model/norm_input.h"

namespace longhaul::model {
namespace {

at::Tensor rows_like(const at::Tensor& like, std::int64_t columns) {
  return at::empty({like.size(0), columns}, like.options());
}

bool keeps(const config::LayerPolicy& policy, config::Slot slot) {
  return policy.action(slot) != config::SlotAction::kRerun;
}

/// Drops what the policy re-runs; gate_up was not made whole then. LSE goes with the attention
/// output it belongs to.
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
}

}  // namespace

DecoderLayer::DecoderLayer(const config::ModelConfig& model, Attention& attention,
                           std::int64_t layer, std::int64_t mlp_tile_rows)
    : model_(&model), attention_(&attention), layer_(layer), mlp_(model, layer, mlp_tile_rows) {}

void DecoderLayer::run_qkv(const LayerWeights& weights, const RowContext& context,
                           LayerSlots& slots) {
  at::Tensor rstd;
  const at::Tensor normed = norm_input(slots.input, weights.input_norm, model_->rms_norm_eps,
                                       *weights.attention_in, rstd);
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

at::Tensor DecoderLayer::output(const LayerWeights& weights, const RowContext& context,
                                LayerSlots& slots) {
  return mlp_.forward(slots.residual, weights, context, Mlp::GateUp::kDrop, slots.mlp);
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
  at::Tensor y = mlp_.forward(
      slots.residual, weights, context,
      keeps(policy, config::Slot::kGateUp) ? Mlp::GateUp::kKeep : Mlp::GateUp::kDrop, slots.mlp);
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

at::Tensor DecoderLayer::backward(at::Tensor dy, const LayerWeights& weights,
                                  const RowContext& context, LayerSlots& slots,
                                  InputGradient input_gradient, GradSink& sink) {
  const at::Tensor dr = mlp_.backward(dy, slots.residual, weights, context, slots.mlp, sink);
  dy.reset();
  slots.residual.reset();
  at::Tensor dout = attention_out_backward(dr, weights, context, slots, sink);
  const at::Tensor dqkv =
      attention_->backward(dout, weights.qk_norm, context, slots.attention, sink);
  dout.reset();

  const Linear& in = *weights.attention_in;
  const LoraDropout dropout = context.local_dropout(layer_, LayerInput::kAttention);
  const at::Tensor du = in.lora_gradient(dqkv);
  at::Tensor rstd;
  const at::Tensor normed =
      norm_input(slots.input, weights.input_norm, model_->rms_norm_eps, in, rstd);
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
