// The second half of a decoder layer: r → r + down(swiglu(gate_up(norm(r)))), whole or in tiles of
// rows. Legend: S tokens of this rank, h hidden size, f MLP width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "config/shapes.h"
#include "model/grad_sink.h"
#include "model/row_context.h"
#include "model/row_parts.h"
#include "model/weight_store.h"

namespace longhaul::model {

/// What the backward pass may keep, LoRA's small u = x·Aᵀ among it.
struct MlpSlots {
  at::Tensor gate_up;  // [S, 2f]
  at::Tensor u_in;
  at::Tensor u_down;
};

/// Works through consecutive tiles of rows, so that [S, 2f] exists for one tile only unless it is
/// kept. Both passes use the same tiles, whether gate_up is kept or not: all activation policies
/// give the same bits under the same tiling. Another tiling cuts products and fp32 sums elsewhere,
/// and rounds another way.
///
/// Order   tiles from the first row to the last in both passes; weight gradients are summed in that
///         order
class Mlp {
 public:
  /// `tile_rows` 0: one tile. `model` must outlive this object.
  Mlp(const config::ModelConfig& model, std::int64_t layer, std::int64_t tile_rows);

  enum class GateUp { kKeep, kDrop };
  /// r [S, h] → y [S, h]; fills the u that are not there, reuses those that are (a re-run).
  at::Tensor forward(const at::Tensor& r, const LayerWeights& weights, const RowContext& context,
                     GateUp gate_up, MlpSlots& slots) const;
  /// dy [S, h] → dr [S, h]; consumes the slots, re-running gate_up and with it the u that were not kept.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& r, const LayerWeights& weights,
                      const RowContext& context, MlpSlots& slots, GradSink& sink) const;

 private:
  /// Rows of a tile with their mask addresses.
  struct Tile {
    config::Range rows;
    bool last = false;
    LoraDropout in_dropout;
    LoraDropout down_dropout;
    [[nodiscard]] at::Tensor of(const at::Tensor& matrix) const { return of_rows(matrix, rows); }
  };
  [[nodiscard]] std::vector<Tile> tiles(const RowContext& context, std::int64_t num_rows) const;
  /// d(gate_up) over gate_up itself.
  void down_backward(const at::Tensor& dy, const Linear& down, const Tile& tile,
                     const at::Tensor& gate_up, at::Tensor u, GradSink& sink) const;

  const config::ModelConfig* model_;
  std::int64_t layer_;
  std::int64_t tile_rows_;
};

}  // namespace longhaul::model
