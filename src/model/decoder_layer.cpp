#include "model/decoder_layer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "base/error.h"
#include "model/norm_input.h"
#include "model/row_parts.h"

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

/// Drops LoRA's u of the products that the policy re-runs.
void drop_u(const config::LayerPolicy& policy, LayerSlots& slots) {
  if (!keeps(policy, config::Slot::kQkv)) {
    slots.u_attention_in.reset();
  }
  if (!keeps(policy, config::Slot::kResidual)) {
    slots.u_attention_out.reset();
  }
  if (!keeps(policy, config::Slot::kGateUp)) {
    slots.mlp.u_in.reset();
    slots.mlp.u_down.reset();
  }
}

}  // namespace

DecoderLayer::DecoderLayer(const config::ModelConfig& model, Attention& attention,
                           std::int64_t layer, std::int64_t mlp_tile_rows, bool reruns_u)
    : model_(&model),
      attention_(&attention),
      layer_(layer),
      mlp_(model, layer, mlp_tile_rows),
      reruns_u_(reruns_u) {}

void DecoderLayer::run_qkv(const LayerWeights& weights, const RowContext& context,
                           LayerSlots& slots) {
  const Linear& in = *weights.attention_in;
  at::Tensor rstd;
  const at::Tensor normed =
      norm_input(slots.input, weights.input_norm, model_->rms_norm_eps, in, rstd);
  const LoraDropout dropout = context.local_dropout(layer_, LayerInput::kAttention);
  WholeU u(slots.u_attention_in, normed.size(0));
  const auto make = [&](LocalRows rows) {
    const at::Tensor x = of_rows(normed, rows);
    at::Tensor qkv = rows_like(x, in.out_features());
    u.forward(in, x, of_rows(dropout, rows), at::Tensor(), qkv, rows);
    return qkv;
  };
  attention_->load_qkv(make, normed, weights.qk_norm, context, slots.attention);
}

void DecoderLayer::run_attention_out(const LayerWeights& weights, const RowContext& context,
                                     LayerSlots& slots) {
  const Linear& out = *weights.attention_out;
  const LoraDropout dropout = context.local_dropout(layer_, LayerInput::kAttentionOut);
  slots.residual = at::empty_like(slots.input);
  WholeU u(slots.u_attention_out, slots.input.size(0));
  attention_->token_local_output(
      slots.attention, out.room(), [&](LocalRows rows, const at::Tensor& values) {
        u.forward(out, values, of_rows(dropout, rows), of_rows(slots.input, rows),
                  of_rows(slots.residual, rows), rows);
      });
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
  if (reruns_u_) {
    drop_u(policy, slots);
  }
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

/// Of the q, k, v projection: d(input) part by part, since the layer below waits for it; weight gradients of all rows at
/// once, since their products are narrow.
struct DecoderLayer::AttentionInBackward {
  const Linear& in;
  LoraDropout dropout;
  bool needs_dx = false;
  at::Tensor normed{};  // the input, [S, h]
  at::Tensor dx{};      // its gradient: in other memory than normed's when the rows come in parts
  at::Tensor du{};

  void part(LocalRows rows, const at::Tensor& dqkv) {
    const at::Tensor du_part = in.lora_gradient(dqkv);
    if (rows.size() == normed.size(0)) {
      du = du_part;
      return;
    }
    if (du_part.defined()) {
      if (!du.defined()) {
        du = at::empty({normed.size(0), du_part.size(1)}, du_part.options());
      }
      of_rows(du, rows).copy_(du_part);
    }
    if (needs_dx) {
      if (!dx.defined()) {
        dx = buffer_for(in, normed, normed.size(1));
      }
      in.input_gradient(dqkv, du_part, of_rows(dropout, rows), of_rows(dx, rows));
    }
  }

  void all(const at::Tensor& dqkv, const at::Tensor& u, GradSink& sink) {
    in.lora_a_gradient(du, normed, dropout, 0, sink);
    in.base_gradient(dqkv, normed, sink);
    in.output_side_gradients(dqkv, u, sink);
    if (needs_dx && !dx.defined()) {
      in.input_gradient(dqkv, du, dropout, normed);  // over the input, which is not read any more
      dx = normed;
    }
  }
};

at::Tensor DecoderLayer::backward(at::Tensor dy, const LayerWeights& weights,
                                  const RowContext& context, LayerSlots& slots,
                                  InputGradient input_gradient, GradSink& sink) {
  const at::Tensor dr = mlp_.backward(dy, slots.residual, weights, context, slots.mlp, sink);
  dy.reset();
  slots.residual.reset();
  const Linear& out = *weights.attention_out;
  const at::Tensor du = out.lora_gradient(dr);
  if (out.base_trained()) {  // an exchange of its own
    attention_->token_local_output(slots.attention, 0,
                                   [&](LocalRows rows, const at::Tensor& values) {
                                     PartSink part(sink, rows.end == dr.size(0));
                                     out.base_gradient(of_rows(dr, rows), values, part);
                                   });
  }
  const LoraDropout out_dropout = context.local_dropout(layer_, LayerInput::kAttentionOut);
  const bool norm_trained = weights.input_norm.param >= 0;
  AttentionInBackward in{.in = *weights.attention_in,
                         .dropout = context.local_dropout(layer_, LayerInput::kAttention),
                         .needs_dx = input_gradient == InputGradient::kNeeded || norm_trained};
  at::Tensor rstd;
  const AttentionGradients gradients{
      .make_dout =
          [&](LocalRows rows) {
            at::Tensor dout = rows_like(of_rows(dr, rows), out.in_features());
            out.input_gradient(of_rows(dr, rows), of_rows(du, rows), of_rows(out_dropout, rows),
                               dout);
            return dout;
          },
      // O exists head-local only: the narrow du is gathered instead of exchanging O, and every rank adds the columns of
      // d(A) that belong to its heads; the sum over ranks joins them.
      .du = du,
      .use_du =
          [&](const at::Tensor& du_row) {
            out.lora_a_gradient(du_row, slots.attention.out,
                                context.row_dropout(layer_, LayerInput::kAttentionOut),
                                attention_->output_columns().begin, sink);
          },
      .beside = [&] { out.output_side_gradients(dr, slots.u_attention_out, sink); },
      .use_dqkv = [&](LocalRows rows, const at::Tensor& dqkv) { in.part(rows, dqkv); },
      .after_dqkv = [&](const at::Tensor& dqkv) { in.all(dqkv, slots.u_attention_in, sink); },
      .before_use =
          [&] {
            in.normed =
                norm_input(slots.input, weights.input_norm, model_->rms_norm_eps, in.in, rstd);
          },
      .dqkv_room = in.in.room()};
  attention_->backward(gradients, dr, weights.qk_norm, context, slots.attention, sink);
  slots.u_attention_in.reset();
  slots.u_attention_out.reset();
  if (in.needs_dx) {
    norm_backward(in.dx, slots.input, weights.input_norm, rstd, dr, in.dx, sink);
  }
  slots.input.reset();
  return in.dx;
}

}  // namespace longhaul::model
