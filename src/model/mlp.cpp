#include "model/mlp.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "model/norm_input.h"
#include "ops/rows.h"

namespace longhaul::model {

Mlp::Mlp(const config::ModelConfig& model, std::int64_t layer, std::int64_t tile_rows)
    : model_(&model), layer_(layer), tile_rows_(tile_rows) {}

std::vector<Mlp::Tile> Mlp::tiles(const RowContext& context, std::int64_t num_rows) const {
  const std::int64_t step = tile_rows_ > 0 ? tile_rows_ : std::max<std::int64_t>(1, num_rows);
  const LoraDropout in = context.local_dropout(layer_, LayerInput::kMlp);
  const LoraDropout down = context.local_dropout(layer_, LayerInput::kMlpDown);
  std::vector<Tile> result;
  std::int64_t begin = 0;
  do {  // a shard without rows is one tile without rows
    const config::Range rows{begin, std::min(begin + step, num_rows)};
    result.push_back({rows, rows.end == num_rows, of_rows(in, rows), of_rows(down, rows)});
    begin = rows.end;
  } while (begin < num_rows);
  return result;
}

at::Tensor Mlp::forward(const at::Tensor& r, const LayerWeights& weights, const RowContext& context,
                        GateUp gate_up, MlpSlots& slots) const {
  const Linear& in = *weights.mlp_in;
  const Linear& down = *weights.mlp_down;
  WholeU u_in(slots.u_in, r.size(0));
  WholeU u_down(slots.u_down, r.size(0));
  if (gate_up == GateUp::kKeep) {
    // The backward pass writes the gradient over it.
    slots.gate_up = buffer_for(in, r, in.out_features());
  }
  at::Tensor y = at::empty_like(r);
  for (const Tile& tile : tiles(context, r.size(0))) {
    const at::Tensor r_tile = tile.of(r);
    const at::Tensor tile_gate_up = gate_up == GateUp::kKeep
                                        ? tile.of(slots.gate_up)
                                        : buffer_for(in, r_tile, in.out_features());
    {
      at::Tensor rstd;
      const at::Tensor normed =
          norm_input(r_tile, weights.post_norm, model_->rms_norm_eps, in, rstd);
      u_in.forward(in, normed, tile.in_dropout, at::Tensor(), tile_gate_up, tile.rows);
    }
    const at::Tensor activated = buffer_for(down, r_tile, down.in_features());
    ops::swiglu(tile_gate_up, activated);
    u_down.forward(down, activated, tile.down_dropout, r_tile, tile.of(y), tile.rows);
  }
  return y;
}

void Mlp::down_backward(const at::Tensor& dy, const Linear& down, const Tile& tile,
                        const at::Tensor& gate_up, at::Tensor u, GradSink& sink) const {
  const at::Tensor du = down.lora_gradient(dy);
  const bool makes_u = !u.defined() && down.lora_columns() > 0;
  // Holds the gradient of the product's input first, then that input, which one pass makes again beside d(gate_up).
  const at::Tensor input = makes_u ? buffer_for(down, dy, down.in_features())
                                   : at::empty({dy.size(0), down.in_features()}, dy.options());
  down.input_gradient(dy, du, tile.down_dropout, input);
  ops::swiglu_backward(input, gate_up, gate_up, down.needs_input() ? input : at::Tensor());
  if (down.needs_input()) {
    if (makes_u) {
      u = down.lora_input(input, tile.down_dropout);
    }
    down.lora_a_gradient(du, input, tile.down_dropout, 0, sink);
    down.base_gradient(dy, input, sink);
  }
  down.output_side_gradients(dy, u, sink);
}

at::Tensor Mlp::backward(const at::Tensor& dy, const at::Tensor& r, const LayerWeights& weights,
                         const RowContext& context, MlpSlots& slots, GradSink& sink) const {
  const Linear& in = *weights.mlp_in;
  // Holds norm(r) first, then its gradient, then d(r).
  const at::Tensor dr = buffer_for(in, r, r.size(1));
  for (const Tile& tile : tiles(context, r.size(0))) {
    PartSink tile_sink(sink, tile.last);
    const at::Tensor r_tile = tile.of(r);
    const at::Tensor dy_tile = tile.of(dy);
    const at::Tensor normed = tile.of(dr);
    const at::Tensor rstd =
        ops::rms_norm(r_tile, weights.post_norm.weight, model_->rms_norm_eps, normed);
    at::Tensor gate_up = tile.of(slots.gate_up);
    at::Tensor u = tile.of(slots.u_in);
    if (!gate_up.defined()) {
      gate_up = buffer_for(in, r_tile, in.out_features());
      in.forward(normed, tile.in_dropout, at::Tensor(), gate_up, u);
    }
    down_backward(dy_tile, *weights.mlp_down, tile, gate_up, tile.of(slots.u_down), tile_sink);
    const at::Tensor du = in.lora_gradient(gate_up);
    in.lora_a_gradient(du, normed, tile.in_dropout, 0, tile_sink);
    in.base_gradient(gate_up, normed, tile_sink);
    in.output_side_gradients(gate_up, u, tile_sink);
    in.input_gradient(gate_up, du, tile.in_dropout, normed);
    norm_backward(normed, r_tile, weights.post_norm, rstd, dy_tile, normed, tile_sink);
  }
  slots = {};
  return dr;
}

}  // namespace longhaul::model
