#include "model/lm_head.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "ops/matmul.h"
#include "ops/rows.h"
#include "text/tokenized_sample.h"

namespace longhaul::model {
namespace {

/// The rows of a shard that have a target.
struct Targets {
  std::vector<std::int64_t> rows;
  std::vector<std::int32_t> labels;
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(rows.size()); }
};

Targets find_targets(std::span<const std::int32_t> labels) {
  Targets targets;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != text::kNoLabel) {
      targets.rows.push_back(static_cast<std::int64_t>(i));
      targets.labels.push_back(labels[i]);
    }
  }
  return targets;
}

at::Tensor row_index(Targets& targets, at::Device device) {
  return at::from_blob(targets.rows.data(), {targets.count()}, at::kLong).to(device);
}

/// Runs the head over tiles of `normed` [n, h]. With a gradient scale, `normed` receives d(normed)
/// tile by tile and the head's weight gradient is added to `dhead` when defined.
LossSum run_tiles(const at::Tensor& normed, const Targets& targets, const at::Tensor& head,
                  std::int64_t tile_rows, double scale, const at::Tensor& dhead) {
  LossSum loss;
  loss.target_tokens = targets.count();
  const std::int64_t step =
      tile_rows > 0
          ? tile_rows
          : config::logits_tile_rows(head.size(0), static_cast<std::int64_t>(head.element_size()),
                                     head.is_cuda());
  const at::Tensor logits =
      at::empty({std::min(step, targets.count()), head.size(0)}, normed.options());
  for (std::int64_t begin = 0; begin < targets.count(); begin += step) {
    const std::int64_t rows = std::min(step, targets.count() - begin);
    const at::Tensor tile = normed.narrow(0, begin, rows);
    const at::Tensor tile_logits = logits.narrow(0, 0, rows);
    ops::linear(tile, head, at::Tensor(), tile_logits);
    const auto labels =
        std::span(targets.labels)
            .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows));
    const ops::TileLoss part = ops::cross_entropy(tile_logits, labels, scale);
    loss.sum += part.loss_sum;
    loss.correct += part.correct;
    if (scale == 0) {
      continue;
    }
    if (dhead.defined()) {
      ops::weight_gradient(tile_logits, tile, 1, dhead);
    }
    ops::product(tile_logits, head, 1, tile);
  }
  return loss;
}

}  // namespace

LossSum head_loss(const at::Tensor& hidden, std::span<const std::int32_t> labels,
                  const EndWeights& ends, const HeadSettings& settings) {
  Targets targets = find_targets(labels);
  if (targets.count() == 0) {
    return {};
  }
  const at::Tensor selected = at::index_select(hidden, 0, row_index(targets, hidden.device()));
  ops::rms_norm(selected, ends.final_norm.weight, settings.norm_eps, selected);
  return run_tiles(selected, targets, ends.head, settings.tile_rows, 0, at::Tensor());
}

HeadBackward head_loss_backward(const at::Tensor& hidden, std::span<const std::int32_t> labels,
                                const EndWeights& ends, const HeadSettings& settings, double scale,
                                bool wants_input_gradient, GradSink& sink) {
  Targets targets = find_targets(labels);
  HeadBackward result;
  at::Tensor dhead;
  if (ends.head_param >= 0) {
    dhead = sink.accumulator(ends.head_param);
  }
  if (wants_input_gradient) {
    result.dhidden = at::zeros_like(hidden);
  }
  if (targets.count() > 0) {
    const at::Tensor index = row_index(targets, hidden.device());
    const at::Tensor selected = at::index_select(hidden, 0, index);
    const at::Tensor normed = at::empty_like(selected);
    const at::Tensor rstd =
        ops::rms_norm(selected, ends.final_norm.weight, settings.norm_eps, normed);
    result.loss = run_tiles(normed, targets, ends.head, settings.tile_rows, scale, dhead);
    at::Tensor dnorm;
    if (ends.final_norm.param >= 0) {
      dnorm = sink.accumulator(ends.final_norm.param);
    }
    ops::rms_norm_backward(normed, selected, ends.final_norm.weight, rstd, at::Tensor(), normed,
                           dnorm);
    if (wants_input_gradient) {
      result.dhidden.index_copy_(0, index, normed);
    }
  }
  if (ends.head_param >= 0 && ends.head_param != ends.embedding_param) {
    sink.finished(ends.head_param);
  }
  if (ends.final_norm.param >= 0) {
    sink.finished(ends.final_norm.param);
  }
  return result;
}

}  // namespace longhaul::model
