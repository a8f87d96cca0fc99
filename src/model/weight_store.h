// Where layers get their weights for one pass. Resident here, sharded in sharded_weight_store.h;
// host-streamed and quantised stores implement the same interface and make the views valid for the
// life of the lease.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "model/attention.h"
#include "model/linear.h"
#include "model/parameters.h"

namespace longhaul::model {

/// A norm's weight [h]; `param` is −1 when it is frozen.
struct NormWeight {
  at::Tensor weight;
  std::int64_t param = -1;
};

/// Everything one decoder layer multiplies with.
struct LayerWeights {
  NormWeight input_norm;
  NormWeight post_norm;
  QkNormWeights qk_norm;
  std::unique_ptr<Linear> attention_in;   // q, k, v
  std::unique_ptr<Linear> attention_out;  // o
  std::unique_ptr<Linear> mlp_in;         // gate, up
  std::unique_ptr<Linear> mlp_down;       // down

  /// Some parameter of the layer is trained.
  [[nodiscard]] bool trained() const;
};

/// Embedding, final norm and LM head.
struct EndWeights {
  at::Tensor embedding;               // [V, h]
  std::int64_t embedding_param = -1;  // −1: frozen
  NormWeight final_norm;
  at::Tensor head;               // [V, h]
  std::int64_t head_param = -1;  // −1: frozen; the embedding's number when tied
};

enum class Pass { kForward, kBackward };

/// The views stay valid while the lease lives, for work that compute is given in that time.
class WeightLease {
 public:
  /// `hold` is shared with the store, which thereby knows how many leases live.
  explicit WeightLease(const LayerWeights& weights, std::shared_ptr<const void> hold = nullptr)
      : weights_(&weights), hold_(std::move(hold)) {}
  [[nodiscard]] const LayerWeights& operator*() const { return *weights_; }
  [[nodiscard]] const LayerWeights* operator->() const { return weights_; }

 private:
  const LayerWeights* weights_;
  std::shared_ptr<const void> hold_;
};

class WeightStore {
 public:
  WeightStore() = default;
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;
  virtual ~WeightStore() = default;

  /// Passes walk the layers one by one, upwards (kForward) or downwards (kBackward, which may go
  /// to the next layer and come back). May be collective over all ranks: then all of them acquire
  /// and release the same layers in the same order.
  virtual WeightLease acquire(std::int64_t layer, Pass pass) = 0;
  [[nodiscard]] virtual const EndWeights& ends() const = 0;
  [[nodiscard]] virtual std::int64_t num_layers() const = 0;
  /// Lowest layer with a trained parameter (num_layers() when none): below it nothing is kept and
  /// nothing flows back, unless the embedding is trained.
  [[nodiscard]] virtual std::int64_t lowest_trained_layer() const = 0;
};

/// Gives the matrix that a sharded group is multiplied with: [N, K], or [N + room, K + room] when
/// the shard is a slab's.
using GroupMatrix =
    std::function<at::Tensor(const Shard& shard, std::span<const LinearMember> members)>;

/// The weights of a layer as views: of `parameters`, and of what `sharded` gives for groups that
/// these do not hold whole.
LayerWeights layer_weights(const Parameters& parameters, std::int64_t layer, double lora_scale,
                           const GroupMatrix& sharded);
/// Embedding, final norm and LM head, which every store keeps whole.
EndWeights end_weights(const Parameters& parameters);

/// All weights resident in memory for the whole run.
class ResidentWeightStore final : public WeightStore {
 public:
  /// `parameters` must outlive the store. `lora_scale` is LoraSpec::scale() (ignored without
  /// adapters).
  ResidentWeightStore(const config::ModelConfig& model, const Parameters& parameters,
                      double lora_scale);

  WeightLease acquire(std::int64_t layer, Pass pass) override;
  [[nodiscard]] const EndWeights& ends() const override { return ends_; }
  [[nodiscard]] std::int64_t num_layers() const override {
    return static_cast<std::int64_t>(layers_.size());
  }
  [[nodiscard]] std::int64_t lowest_trained_layer() const override;

 private:
  std::vector<LayerWeights> layers_;
  EndWeights ends_;
};

}  // namespace longhaul::model
