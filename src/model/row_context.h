// What every layer needs to know about the row being trained: its documents, positions and mask
// addresses, for the rank's own tokens and for the whole row.
#pragma once

#include <cstdint>
#include <vector>

#include "config/model_config.h"
#include "config/shapes.h"
#include "dist/shard.h"
#include "model/linear.h"
#include "ops/rows.h"

namespace longhaul::model {

/// The four inputs of a layer that LoRA modules read; modules reading one input share a mask.
enum class LayerInput : std::uint32_t { kAttention = 0, kAttentionOut = 1, kMlp = 2, kMlpDown = 3 };

/// How LoRA dropout and NEFTune noise are addressed in one epoch of one run.
struct RandomAddress {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  double lora_dropout = 0;   // 0 in evaluation
  double neftune_alpha = 0;  // 0: off and in evaluation
};

class RowContext {
 public:
  RowContext(const dist::LocalBatch& batch, const config::ModelConfig& model,
             const RandomAddress& random, at::Device device = at::kCPU);

  [[nodiscard]] const dist::LocalBatch& batch() const { return *batch_; }
  [[nodiscard]] std::int64_t local_tokens() const { return batch_->my_tokens.size(); }
  [[nodiscard]] std::int64_t row_tokens() const { return batch_->row_tokens(); }
  /// Rotary angles of all tokens of the row, and of the rank's own (a view of those).
  [[nodiscard]] const ops::RopeTable& rope() const { return rope_; }
  [[nodiscard]] const ops::RopeTable& local_rope() const { return local_rope_; }

  /// Mask addresses for the rank's own tokens, or for all tokens of the row (head-local inputs).
  [[nodiscard]] LoraDropout local_dropout(std::int64_t layer, LayerInput input) const;
  [[nodiscard]] LoraDropout row_dropout(std::int64_t layer, LayerInput input) const;

  /// Adds NEFTune noise to the embeddings [S, h] of the rank's tokens (nothing when it is off).
  void add_neftune(const at::Tensor& embeddings) const;

 private:
  [[nodiscard]] std::uint64_t seed_key(std::uint32_t purpose, std::int64_t layer,
                                       std::uint32_t input) const;

  const dist::LocalBatch* batch_;
  RandomAddress random_;
  ops::RopeTable rope_;
  ops::RopeTable local_rope_;
  std::vector<std::uint64_t> row_keys_;  // one per token of the row: (sample, position)
  at::Tensor device_keys_;               // on a GPU
};

}  // namespace longhaul::model
