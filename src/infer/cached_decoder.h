// The decoder as generation needs it: feed tokens, get the logits of the next one. Prompt and
// single tokens run through the layers that training uses; only attention is another
// (cached_attention.h). Legend: h hidden size, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "config/model_config.h"
#include "infer/cached_attention.h"
#include "model/decoder_layer.h"
#include "model/weight_store.h"

namespace longhaul::infer {

/// Prompts run in pieces of this many tokens, so that memory does not grow with their length.
constexpr std::int64_t kPrefillTokens = 1024;

class CachedDecoder {
 public:
  /// Both must outlive the decoder.
  CachedDecoder(const config::ModelConfig& model, model::WeightStore& store);

  /// Tokens in the cache.
  [[nodiscard]] const std::vector<std::int32_t>& tokens() const { return tokens_; }
  /// Forgets everything behind the first `count` tokens.
  void truncate(std::size_t count);
  /// Puts `ids` (one or more) behind the cached tokens; returns the logits [V] in fp32 of what
  /// follows the last one.
  at::Tensor append(std::span<const std::int32_t> ids);
  /// Makes the cache hold exactly `ids`, keeping the longest common beginning; returns as append().
  at::Tensor replace(std::span<const std::int32_t> ids);

 private:
  /// Hidden states [S, h] of the next piece.
  at::Tensor run_layers(std::span<const std::int32_t> ids);
  [[nodiscard]] at::Tensor logits_of(const at::Tensor& hidden_1h) const;

  const config::ModelConfig* model_;
  model::WeightStore* store_;
  std::vector<float> inverse_frequencies_;
  StepPositions positions_;
  std::vector<std::unique_ptr<CachedAttention>> attention_;
  std::vector<model::DecoderLayer> layers_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace longhaul::infer
