// One decoder layer with explicit forward and backward: x → x + o(attention(norm(x))) → +
// down(swiglu(norm(·))). Legend: S tokens of this rank, h hidden size, f MLP width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "config/shapes.h"
#include "model/attention.h"
#include "model/grad_sink.h"
#include "model/mlp.h"
#include "model/row_context.h"
#include "model/weight_store.h"

namespace longhaul::model {

/// What one layer keeps between its passes; the policy decides which of the big ones are defined
/// after forward. LoRA's small u = x·Aᵀ are kept with them, or always.
struct LayerSlots {
  at::Tensor input;  // [S, h]
  AttentionSlots attention;
  at::Tensor residual;  // [S, h] after attention
  MlpSlots mlp;
  at::Tensor u_attention_in;
  at::Tensor u_attention_out;
};

enum class InputGradient { kNeeded, kNotNeeded };

class DecoderLayer {
 public:
  /// `model` and `attention` must outlive this object. `mlp_tile_rows` as in Mlp; `reruns_u`: the u of products that
  /// run again are made again with them instead of kept.
  DecoderLayer(const config::ModelConfig& model, Attention& attention, std::int64_t layer,
               std::int64_t mlp_tile_rows = 0, bool reruns_u = false);

  /// x [S, h] → y [S, h], filling the slots that `policy` keeps. Collective.
  at::Tensor forward(const at::Tensor& x, const LayerWeights& weights, const RowContext& context,
                     const config::LayerPolicy& policy, LayerSlots& slots);
  /// x → y keeping nothing (evaluation, layers below the lowest trained one). Collective.
  at::Tensor forward_only(const at::Tensor& x, const LayerWeights& weights,
                          const RowContext& context);
  /// Fills every missing slot but gate_up from slots.input by re-running what made it, with the
  /// forward pass's own products; the MLP re-runs gate_up itself, tile by tile. Collective.
  void rerun(const LayerWeights& weights, const RowContext& context, LayerSlots& slots);
  /// y again from what rerun() fills (re-runs the MLP). Local.
  at::Tensor output(const LayerWeights& weights, const RowContext& context, LayerSlots& slots);
  /// dy [S, h] → dx [S, h] (undefined when not needed); consumes what rerun() fills. The last
  /// reference to dy should be the argument: its memory is free for attention then. Collective.
  at::Tensor backward(at::Tensor dy, const LayerWeights& weights, const RowContext& context,
                      LayerSlots& slots, InputGradient input_gradient, GradSink& sink);

 private:
  void run_qkv(const LayerWeights& weights, const RowContext& context, LayerSlots& slots);
  void run_attention_out(const LayerWeights& weights, const RowContext& context, LayerSlots& slots);
  struct AttentionInBackward;

  const config::ModelConfig* model_;
  Attention* attention_;
  std::int64_t layer_;
  Mlp mlp_;
  bool reruns_u_;
};

}  // namespace longhaul::model
