// The whole decoder: embedding, the layer walker that executes the activation plan, head and loss.
#pragma once

#include <cstdint>
#include <vector>

#include "config/model_config.h"
#include "config/shapes.h"
#include "model/attention.h"
#include "model/decoder_layer.h"
#include "model/lm_head.h"
#include "model/row_context.h"
#include "model/slot_offload.h"
#include "model/weight_store.h"

namespace longhaul::model {

/// How the passes save memory, beside the policies of the layers (plan::MemoryPlan chooses both).
struct MemorySettings {
  ops::HostBudget host;               // for layers that offload
  std::int64_t mlp_tile_rows = 0;     // as in Mlp
  bool reruns_u = false;              // as in DecoderLayer
  std::int64_t logits_tile_rows = 0;  // as in HeadSettings
};

class DecoderModel {
 public:
  /// `model`, `store` and `attention` must outlive this object. `policies` has one entry per layer.
  DecoderModel(const config::ModelConfig& model, WeightStore& store, Attention& attention,
               std::vector<config::LayerPolicy> policies, const MemorySettings& memory = {});

  /// Loss of this rank's shard and its weight gradients, each token's loss multiplied by `scale` (1
  /// / target tokens of the global batch). Gradients of this rank's tokens and heads only: sum them
  /// over all ranks. Collective.
  LossSum forward_backward(const dist::LocalBatch& batch, double scale, const RandomAddress& random,
                           GradSink& sink);
  /// Loss alone; dropout and noise are off. Collective.
  LossSum evaluate(const dist::LocalBatch& batch);
  /// Hidden states before the final norm [S, h]; for tests and inference. Collective.
  at::Tensor hidden_states(const dist::LocalBatch& batch);
  /// What a rank without a row does while others run forward_backward() or evaluate(): it takes its
  /// part in the collectives of the weight store, and computes nothing.
  void sit_out_forward_backward();
  void sit_out_evaluate();
  /// Host memory held for offloaded slots.
  [[nodiscard]] std::int64_t host_bytes() const { return offload_.host_bytes(); }

 private:
  at::Tensor embed(const dist::LocalBatch& batch, const RowContext& context) const;
  void walk_backward(at::Tensor dx, const RowContext& context, std::vector<LayerSlots>& slots,
                     GradSink& sink);
  void bring_back(std::int64_t layer, std::vector<LayerSlots>& slots);
  void restore(std::int64_t layer, const RowContext& context, std::vector<LayerSlots>& slots);
  [[nodiscard]] std::int64_t lowest_backward_layer() const;
  [[nodiscard]] bool has_backward() const;

  const config::ModelConfig* model_;
  WeightStore* store_;
  Attention* attention_;
  std::vector<config::LayerPolicy> policies_;
  SlotOffload offload_;
  std::vector<DecoderLayer> layers_;
  HeadSettings head_;
  std::vector<bool> rebuilds_input_;  // second layers of D2 pairs
};

}  // namespace longhaul::model
