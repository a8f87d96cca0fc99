#include "infer/cached_decoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "dist/shard.h"
#include "model/row_context.h"
#include "ops/matmul.h"
#include "ops/rows.h"

namespace longhaul::infer {
namespace {

/// What layers read of a row when nothing is trained: its size.
dist::LocalBatch plain_batch(std::span<const std::int32_t> ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  dist::LocalBatch batch;
  batch.ids.assign(ids.begin(), ids.end());
  batch.cu_seqlens = {0, static_cast<std::int32_t>(count)};
  batch.sample_ids = {0};
  batch.tokens = {{0, count}};
  batch.my_tokens = {0, count};
  return batch;
}

}  // namespace

CachedDecoder::CachedDecoder(const config::ModelConfig& model, model::WeightStore& store)
    : model_(&model),
      store_(&store),
      inverse_frequencies_(config::rope_inverse_frequencies(model)) {
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    attention_.push_back(std::make_unique<CachedAttention>(model, positions_));
    layers_.emplace_back(model, *attention_.back(), layer);
  }
}

void CachedDecoder::truncate(std::size_t count) {
  LONGHAUL_ASSERT(count <= tokens_.size(), "only what is there can be forgotten");
  tokens_.resize(count);
}

at::Tensor CachedDecoder::run_layers(std::span<const std::int32_t> ids) {
  const dist::LocalBatch batch = plain_batch(ids);
  const model::RowContext context(batch, *model_, model::RandomAddress{},
                                  store_->ends().embedding.device());
  std::vector<std::int32_t> places(ids.size());
  std::iota(places.begin(), places.end(), static_cast<std::int32_t>(tokens_.size()));
  positions_.begin = static_cast<std::int64_t>(tokens_.size());
  positions_.rope =
      ops::make_rope_table(places, inverse_frequencies_, store_->ends().embedding.device());

  const at::Tensor& table = store_->ends().embedding;
  at::Tensor x = at::empty({static_cast<std::int64_t>(ids.size()), table.size(1)}, table.options());
  ops::embedding_gather(table, ids, x);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const model::WeightLease weights =
        store_->acquire(static_cast<std::int64_t>(i), model::Pass::kForward);
    x = layers_[i].forward_only(x, *weights, context);
  }
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  return x;
}

at::Tensor CachedDecoder::logits_of(const at::Tensor& hidden_1h) const {
  const model::EndWeights& ends = store_->ends();
  const at::Tensor normed = at::empty_like(hidden_1h);
  ops::rms_norm(hidden_1h, ends.final_norm.weight, model_->rms_norm_eps, normed);
  const at::Tensor logits = at::empty({1, ends.head.size(0)}, normed.options());
  ops::linear(normed, ends.head, at::Tensor(), logits);
  return logits.squeeze(0).to(at::kFloat).cpu();
}

at::Tensor CachedDecoder::append(std::span<const std::int32_t> ids) {
  LONGHAUL_ASSERT(!ids.empty(), "a step has tokens");
  at::Tensor hidden;
  while (!ids.empty()) {
    const std::size_t count = std::min(ids.size(), static_cast<std::size_t>(kPrefillTokens));
    hidden = run_layers(ids.first(count));
    ids = ids.subspan(count);
  }
  return logits_of(hidden.narrow(0, hidden.size(0) - 1, 1));
}

at::Tensor CachedDecoder::replace(std::span<const std::int32_t> ids) {
  LONGHAUL_ASSERT(!ids.empty(), "a prompt has tokens");
  const auto same = std::mismatch(tokens_.begin(), tokens_.end(), ids.begin(), ids.end()).second;
  // The last token always runs again: its logits are what is asked for.
  const auto keep = std::min(static_cast<std::size_t>(same - ids.begin()), ids.size() - 1);
  truncate(keep);
  return append(ids.subspan(keep));
}

}  // namespace longhaul::infer
