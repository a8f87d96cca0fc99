#include "model/decoder_model.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/error.h"

namespace longhaul::model {

DecoderModel::DecoderModel(const config::ModelConfig& model, WeightStore& store,
                           Attention& attention, std::vector<config::LayerPolicy> policies,
                           const MemorySettings& memory)
    : model_(&model),
      store_(&store),
      attention_(&attention),
      policies_(std::move(policies)),
      offload_(policies_, store.ends().embedding.device(), memory.host),
      head_{.norm_eps = model.rms_norm_eps, .tile_rows = memory.logits_tile_rows} {
  LONGHAUL_ASSERT(static_cast<std::int64_t>(policies_.size()) == model.num_layers,
                  "one activation policy per layer");
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    layers_.emplace_back(model, attention, layer, memory.mlp_tile_rows, memory.reruns_u);
  }
  rebuilds_input_ = config::rebuilt_inputs(policies_, lowest_backward_layer());
}

std::int64_t DecoderModel::lowest_backward_layer() const {
  return store_->ends().embedding_param >= 0 ? 0 : store_->lowest_trained_layer();
}

/// Something below the head is trained.
bool DecoderModel::has_backward() const {
  return lowest_backward_layer() < static_cast<std::int64_t>(layers_.size());
}

at::Tensor DecoderModel::embed(const dist::LocalBatch& batch, const RowContext& context) const {
  const at::Tensor& table = store_->ends().embedding;
  at::Tensor x =
      at::empty({static_cast<std::int64_t>(batch.ids.size()), table.size(1)}, table.options());
  ops::embedding_gather(table, batch.ids, x);
  context.add_neftune(x);
  return x;
}

LossSum DecoderModel::forward_backward(const dist::LocalBatch& batch, double scale,
                                       const RandomAddress& random, GradSink& sink) {
  const RowContext context(batch, *model_, random, store_->ends().embedding.device());
  attention_->set_row(context);
  const std::int64_t lowest = lowest_backward_layer();
  std::vector<LayerSlots> slots(layers_.size());
  offload_.begin(batch.row_tokens());
  at::Tensor x = embed(batch, context);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    offload_.before_layer();
    const WeightLease weights = store_->acquire(layer, Pass::kForward);
    x = layer < lowest ? layers_[i].forward_only(x, *weights, context)
                       : layers_[i].forward(x, *weights, context, policies_[i], slots[i]);
    if (rebuilds_input_[i]) {
      slots[i].input.reset();
    }
    offload_.after_layer(layer, slots[i]);
  }
  offload_.before_layer();
  offload_.prefetch_below(static_cast<std::int64_t>(layers_.size()));
  HeadBackward head =
      head_loss_backward(x, batch.labels, store_->ends(), head_, scale, has_backward(), sink);
  x.reset();
  if (head.dhidden.defined()) {
    walk_backward(std::move(head.dhidden), context, slots, sink);
  }
  return head.loss;
}

/// What the backward pass of `layer` finds kept, from the host; starts fetching what the next one
/// needs, which then travels beside this one's compute.
void DecoderModel::bring_back(std::int64_t layer, std::vector<LayerSlots>& slots) {
  offload_.bring_back(layer, slots[static_cast<std::size_t>(layer)]);
  if (rebuilds_input_[static_cast<std::size_t>(layer)]) {
    --layer;
    offload_.bring_back(layer, slots[static_cast<std::size_t>(layer)]);
  }
  offload_.prefetch_below(layer);
}

void DecoderModel::restore(std::int64_t layer, const RowContext& context,
                           std::vector<LayerSlots>& slots) {
  LayerSlots& mine = slots[static_cast<std::size_t>(layer)];
  const WeightLease weights = store_->acquire(layer, Pass::kBackward);
  if (!mine.input.defined()) {
    // Second layer of a D2 pair: its input is the first layer's output, re-run from that layer's
    // kept input.
    const auto below = static_cast<std::size_t>(layer - 1);
    restore(layer - 1, context, slots);
    const WeightLease weights_below = store_->acquire(layer - 1, Pass::kBackward);
    mine.input = layers_[below].output(*weights_below, context, slots[below]);
  }
  layers_[static_cast<std::size_t>(layer)].rerun(*weights, context, mine);
}

void DecoderModel::walk_backward(at::Tensor dx, const RowContext& context,
                                 std::vector<LayerSlots>& slots, GradSink& sink) {
  const EndWeights& ends = store_->ends();
  const std::int64_t lowest = lowest_backward_layer();
  for (auto layer = static_cast<std::int64_t>(layers_.size()) - 1; layer >= lowest; --layer) {
    bring_back(layer, slots);
    restore(layer, context, slots);
    const WeightLease weights = store_->acquire(layer, Pass::kBackward);
    const InputGradient need = layer > lowest || ends.embedding_param >= 0
                                   ? InputGradient::kNeeded
                                   : InputGradient::kNotNeeded;
    const auto i = static_cast<std::size_t>(layer);
    dx = layers_[i].backward(std::move(dx), *weights, context, slots[i], need, sink);
  }
  if (ends.embedding_param >= 0) {
    ops::embedding_scatter(dx, context.batch().ids, sink.accumulator(ends.embedding_param));
    sink.finished(ends.embedding_param);
  }
}

at::Tensor DecoderModel::hidden_states(const dist::LocalBatch& batch) {
  const RowContext context(batch, *model_, RandomAddress{}, store_->ends().embedding.device());
  attention_->set_row(context);
  at::Tensor x = embed(batch, context);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const WeightLease weights = store_->acquire(static_cast<std::int64_t>(i), Pass::kForward);
    x = layers_[i].forward_only(x, *weights, context);
  }
  return x;
}

void DecoderModel::sit_out_evaluate() {
  for (std::int64_t layer = 0; layer < static_cast<std::int64_t>(layers_.size()); ++layer) {
    static_cast<void>(store_->acquire(layer, Pass::kForward));
  }
}

/// The leases of forward_backward(), in its order.
void DecoderModel::sit_out_forward_backward() {
  sit_out_evaluate();
  if (!has_backward()) {
    return;
  }
  const std::int64_t lowest = lowest_backward_layer();
  for (auto layer = static_cast<std::int64_t>(layers_.size()) - 1; layer >= lowest; --layer) {
    {
      const WeightLease weights = store_->acquire(layer, Pass::kBackward);
      if (rebuilds_input_[static_cast<std::size_t>(layer)]) {
        static_cast<void>(store_->acquire(layer - 1, Pass::kBackward));
      }
    }
    static_cast<void>(store_->acquire(layer, Pass::kBackward));
  }
}

LossSum DecoderModel::evaluate(const dist::LocalBatch& batch) {
  return head_loss(hidden_states(batch), batch.labels, store_->ends(), head_);
}

}  // namespace longhaul::model
