// Attention of one layer over everything that was said before: keys and values of earlier tokens
// stay in a cache, so a new token costs one row. The layer's own code runs unchanged on top of it.
// Legend: S new tokens, L cached tokens, nq / nk query / KV heads, d head size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "config/model_config.h"
#include "model/attention.h"
#include "ops/attention.h"
#include "ops/rows.h"

namespace longhaul::infer {

/// Where the tokens of one step stand; shared by all layers.
struct StepPositions {
  std::int64_t begin = 0;  // number of tokens before them
  ops::RopeTable rope;     // rows of the new tokens
};

class CachedAttention final : public model::Attention {
 public:
  /// `positions` is set by the owner before every step; both must outlive this object.
  CachedAttention(const config::ModelConfig& model, const StepPositions& positions);

  /// Nothing to do: there is one rank and one document.
  void set_row(const model::RowContext& context) override;
  /// Normalises and rotates q, k in place and puts k, v behind the cached ones; what stood at these
  /// positions before is overwritten.
  void load_qkv(const model::MakeRows& make, const at::Tensor& like,
                const model::QkNormWeights& norm, const model::RowContext& context,
                model::AttentionSlots& slots) override;
  /// Every new token sees the cached ones and the new ones up to itself.
  void attend(const model::QkNormWeights& norm, const model::RowContext& context,
              model::AttentionSlots& slots) override;
  void token_local_output(const model::AttentionSlots& slots, std::int64_t room,
                          const model::UseRows& use) override;
  /// There is no backward pass here: InternalError.
  void backward(const model::AttentionGradients& gradients, const at::Tensor& like,
                const model::QkNormWeights& norm, const model::RowContext& context,
                model::AttentionSlots& slots, model::GradSink& sink) override;
  [[nodiscard]] config::Range output_columns() const override;

 private:
  void reserve(std::int64_t tokens, const at::Tensor& like);
  /// One new token: query heads that share a KV head are the rows of one small product.
  [[nodiscard]] at::Tensor attend_one(const at::Tensor& qkv) const;
  /// Several new tokens behind cached ones.
  [[nodiscard]] at::Tensor attend_several(const at::Tensor& qkv) const;
  /// The first L rows of a cache as [1, nk, L, d].
  [[nodiscard]] at::Tensor cached(const at::Tensor& cache, std::int64_t tokens) const;

  const config::ModelConfig* model_;
  const StepPositions* positions_;
  ops::AttentionShape shape_;
  at::Tensor keys_;    // [capacity, nk·d]
  at::Tensor values_;  // [capacity, nk·d]
};

}  // namespace longhaul::infer
