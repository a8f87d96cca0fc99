#include "infer/cached_attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>

#include "base/error.h"

namespace longhaul::infer {
namespace {

constexpr std::int64_t kFirstCapacity = 256;

ops::AttentionShape shape_of(const config::ModelConfig& model) {
  const config::RankHeads heads = config::split_heads(model.num_heads, model.num_kv_heads, 1)[0];
  return {.num_query_heads = model.num_heads,
          .num_kv_heads = model.num_kv_heads,
          .head_dim = model.head_dim,
          .runs = config::equal_ratio_runs(heads)};
}

/// [S, heads·d] as [1, heads, S, d].
at::Tensor heads_first(const at::Tensor& rows, std::int64_t head_dim) {
  return rows.unflatten(1, {rows.size(1) / head_dim, head_dim}).transpose(0, 1).unsqueeze(0);
}

/// q [1, nq, S, d] over k, v [1, nk, L, d] -> [1, nq, S, d]; an undefined mask hides nothing.
at::Tensor attention_over(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& mask) {
  const auto optional_mask = mask.defined() ? std::optional(mask) : std::nullopt;
  if (q.is_cpu()) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        q, k, v, /*dropout_p=*/0.0, /*is_causal=*/false, optional_mask));
  }
  return at::scaled_dot_product_attention(
      q, k, v, mask.defined() ? std::optional(mask.to(q.options())) : std::nullopt,
      /*dropout_p=*/0.0, /*is_causal=*/false, /*scale=*/std::nullopt,
      /*enable_gqa=*/q.size(1) != k.size(1));
}

/// Additive mask [S, past + S]: new token i sees the cached tokens and the new ones up to itself.
at::Tensor causal_mask(std::int64_t past, std::int64_t tokens) {
  at::Tensor mask = at::full({tokens, past + tokens}, 0.0, at::kFloat);
  auto* rows = mask.data_ptr<float>();
  for (std::int64_t i = 0; i < tokens; ++i) {
    float* const row = rows + i * (past + tokens);
    std::fill(row + past + i + 1, row + past + tokens, -std::numeric_limits<float>::infinity());
  }
  return mask;
}

}  // namespace

CachedAttention::CachedAttention(const config::ModelConfig& model, const StepPositions& positions)
    : model_(&model), positions_(&positions), shape_(shape_of(model)) {}

void CachedAttention::set_row(const model::RowContext& /*context*/) {}

void CachedAttention::reserve(std::int64_t tokens, const at::Tensor& like) {
  const std::int64_t capacity = keys_.defined() ? keys_.size(0) : 0;
  if (tokens <= capacity) {
    return;
  }
  const std::int64_t wanted = std::max({kFirstCapacity, tokens, capacity * 2});
  for (at::Tensor* const cache : {&keys_, &values_}) {
    at::Tensor larger = at::empty({wanted, shape_.num_kv_heads * shape_.head_dim}, like.options());
    if (cache->defined()) {
      larger.narrow(0, 0, capacity).copy_(*cache);
    }
    *cache = std::move(larger);
  }
}

void CachedAttention::load_qkv(const model::MakeRows& make, const at::Tensor& like,
                               const model::QkNormWeights& norm,
                               const model::RowContext& /*context*/, model::AttentionSlots& slots) {
  const at::Tensor qkv = make({0, like.size(0)});
  const std::int64_t tokens = qkv.size(0);
  const std::int64_t q_width = shape_.num_query_heads * shape_.head_dim;
  const std::int64_t kv_width = shape_.num_kv_heads * shape_.head_dim;
  const at::Tensor q = qkv.narrow(1, 0, q_width);
  const at::Tensor k = qkv.narrow(1, q_width, kv_width);
  if (norm.q.defined()) {
    ops::rms_norm(q, norm.q, model_->rms_norm_eps, q);
    ops::rms_norm(k, norm.k, model_->rms_norm_eps, k);
  }
  ops::rope(q, positions_->rope, shape_.head_dim, ops::RopeDirection::kForward);
  ops::rope(k, positions_->rope, shape_.head_dim, ops::RopeDirection::kForward);
  reserve(positions_->begin + tokens, qkv);
  keys_.narrow(0, positions_->begin, tokens).copy_(k);
  values_.narrow(0, positions_->begin, tokens).copy_(qkv.narrow(1, q_width + kv_width, kv_width));
  slots.qkv = qkv;
}

at::Tensor CachedAttention::cached(const at::Tensor& cache, std::int64_t tokens) const {
  return heads_first(cache.narrow(0, 0, tokens), shape_.head_dim);
}

at::Tensor CachedAttention::attend_one(const at::Tensor& qkv) const {
  const std::int64_t tokens = positions_->begin + 1;
  const std::int64_t ratio = shape_.num_query_heads / shape_.num_kv_heads;
  const at::Tensor q = qkv.narrow(1, 0, shape_.num_query_heads * shape_.head_dim)
                           .view({1, shape_.num_kv_heads, ratio, shape_.head_dim});
  const at::Tensor out =
      attention_over(q, cached(keys_, tokens), cached(values_, tokens), at::Tensor());
  return out.contiguous().view({1, -1});
}

at::Tensor CachedAttention::attend_several(const at::Tensor& qkv) const {
  const std::int64_t tokens = qkv.size(0);
  const std::int64_t all = positions_->begin + tokens;
  const at::Tensor q =
      heads_first(qkv.narrow(1, 0, shape_.num_query_heads * shape_.head_dim), shape_.head_dim);
  const at::Tensor out = attention_over(q, cached(keys_, all), cached(values_, all),
                                        causal_mask(positions_->begin, tokens));
  return out.squeeze(0).transpose(0, 1).contiguous().view({tokens, -1});
}

void CachedAttention::attend(const model::QkNormWeights& /*norm*/,
                             const model::RowContext& /*context*/, model::AttentionSlots& slots) {
  const auto tokens = static_cast<std::int32_t>(slots.qkv.size(0));
  if (positions_->begin == 0) {
    const std::array<std::int32_t, 2> one_document = {0, tokens};
    slots.out = ops::attention_forward(slots.qkv, shape_, one_document).out;
  } else {
    slots.out = tokens == 1 ? attend_one(slots.qkv) : attend_several(slots.qkv);
  }
}

void CachedAttention::token_local_output(const model::AttentionSlots& slots, std::int64_t /*room*/,
                                         const model::UseRows& use) {
  use({0, slots.out.size(0)}, slots.out);
}

void CachedAttention::backward(const model::AttentionGradients& /*gradients*/,
                               const at::Tensor& /*like*/, const model::QkNormWeights& /*norm*/,
                               const model::RowContext& /*context*/,
                               model::AttentionSlots& /*slots*/, model::GradSink& /*sink*/) {
  LONGHAUL_ASSERT(false, "cached attention has no backward pass");
}

config::Range CachedAttention::output_columns() const {
  return {0, shape_.num_query_heads * shape_.head_dim};
}

}  // namespace longhaul::infer
