// Final norm, LM head and cross-entropy over the rows that have a target, in tiles: logits of more
// than a tile never exist. The gradient with respect to the hidden state is made in the same pass.
// Legend: S tokens of this rank, n target rows, h hidden size, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "model/grad_sink.h"
#include "model/weight_store.h"

namespace longhaul::model {

/// Sums over one rank's target tokens; divided by nothing.
struct LossSum {
  double sum = 0;
  std::int64_t target_tokens = 0;
  std::int64_t correct = 0;
};

struct HeadSettings {
  double norm_eps = 0;
  std::int64_t tile_rows = 0;  // 0: config::logits_tile_rows
};

/// Loss of `hidden` [S, h] (before the final norm) without gradients.
LossSum head_loss(const at::Tensor& hidden, std::span<const std::int32_t> labels,
                  const EndWeights& ends, const HeadSettings& settings);

struct HeadBackward {
  LossSum loss;
  at::Tensor dhidden;  // [S, h]; undefined when `wants_input_gradient` is false
};
/// The same with gradients: every token's loss is multiplied by `scale`. Weight gradients of a
/// trained head and final norm go to `sink`. A rank without targets returns zeros.
HeadBackward head_loss_backward(const at::Tensor& hidden, std::span<const std::int32_t> labels,
                                const EndWeights& ends, const HeadSettings& settings, double scale,
                                bool wants_input_gradient, GradSink& sink);

}  // namespace longhaul::model
