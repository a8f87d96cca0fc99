// One decoder layer with explicit forward and backward: x → x + o(attention(norm(x))) → +
// down(swiglu(norm(·))). Legend: S tokens of this rank, h hidden size, f MLP width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "config/shapes.h"
#include "model/attention.h"
#include "model/grad_sink.h"
#include "model/row_context.h"
#include "model/weight_store.h"

namespace longhaul::model {

/// What one layer keeps between its passes; the policy decides which of the big ones are defined
/// after forward. LoRA's small u = x·Aᵀ are always kept.
struct LayerSlots {
  at::Tensor input;  // [S, h]
  AttentionSlots attention;
  at::Tensor residual;  // [S, h] after attention
  at::Tensor gate_up;   // [S, 2f]
  at::Tensor u_attention_in;
  at::Tensor u_attention_out;
  at::Tensor u_mlp_in;
  at::Tensor u_mlp_down;
};

enum class InputGradient { kNeeded, kNotNeeded };

class DecoderLayer {
 public:
  /// `model` and `attention` must outlive this object.
  DecoderLayer(const config::ModelConfig& model, Attention& attention, std::int64_t layer);

  /// x [S, h] → y [S, h], filling the slots that `policy` keeps. Collective.
  at::Tensor forward(const at::Tensor& x, const LayerWeights& weights, const RowContext& context,
                     const config::LayerPolicy& policy, LayerSlots& slots);
  /// x → y keeping nothing (evaluation, layers below the lowest trained one). Collective.
  at::Tensor forward_only(const at::Tensor& x, const LayerWeights& weights,
                          const RowContext& context);
  /// Fills every missing slot from slots.input by re-running what made it, with the forward pass's
  /// own products. Collective.
  void rerun(const LayerWeights& weights, const RowContext& context, LayerSlots& slots);
  /// y again from complete slots (re-runs down_proj only). Local.
  at::Tensor output(const LayerWeights& weights, const RowContext& context, LayerSlots& slots);
  /// dy [S, h] → dx [S, h] (undefined when not needed); consumes complete slots. Collective.
  at::Tensor backward(const at::Tensor& dy, const LayerWeights& weights, const RowContext& context,
                      LayerSlots& slots, InputGradient input_gradient, GradSink& sink);

 private:
  void run_qkv(const LayerWeights& weights, const RowContext& context, LayerSlots& slots);
  void run_attention_out(const LayerWeights& weights, const RowContext& context, LayerSlots& slots);
  void run_gate_up(const LayerWeights& weights, const RowContext& context, LayerSlots& slots);
  at::Tensor mlp_backward(const at::Tensor& dy, const LayerWeights& weights,
                          const RowContext& context, LayerSlots& slots, GradSink& sink);
  at::Tensor attention_out_backward(const at::Tensor& dr, const LayerWeights& weights,
                                    const RowContext& context, LayerSlots& slots, GradSink& sink);
  /// norm(x) in a buffer for `reader`.
  at::Tensor norm_input(const at::Tensor& x, const NormWeight& norm, const Linear& reader,
                        at::Tensor& rstd) const;
  void norm_backward(const at::Tensor& dy, const at::Tensor& x, const NormWeight& norm,
                     const at::Tensor& rstd, const at::Tensor& add, const at::Tensor& dx,
                     GradSink& sink) const;

  const config::ModelConfig* model_;
  Attention* attention_;
  std::int64_t layer_;
};

}  // namespace longhaul::model
