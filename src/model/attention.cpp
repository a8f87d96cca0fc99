#include "model/attention.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "base/error.h"
#include "model/row_parts.h"
#include "ops/room.h"

namespace longhaul::model {
namespace {

at::Tensor as_heads(const at::Tensor& rows, std::int64_t head_dim) {
  return rows.unflatten(1, {rows.size(1) / head_dim, head_dim});
}

at::Tensor as_rows(const at::Tensor& heads) { return heads.flatten(1); }

}  // namespace

UlyssesAttention::UlyssesAttention(const config::ModelConfig& model,
                                   dist::UlyssesExchange& exchange)
    : model_(&model), exchange_(&exchange) {
  const config::RankHeads& heads = exchange.my_heads();
  shape_ = {.num_query_heads = heads.num_query_heads(),
            .num_kv_heads = heads.num_kv_heads(),
            .head_dim = model.head_dim,
            .runs = config::equal_ratio_runs(heads)};
  // Forward the output projection, backward the gradient of the q, k, v projection's input.
  exchange.set_taker_columns(model.hidden_size);
}

void UlyssesAttention::set_head_groups(std::int64_t groups) {
  shape_.groups = std::clamp<std::int64_t>(groups, 1, shape_.num_kv_heads);
}

void UlyssesAttention::set_row(const RowContext& context) {
  exchange_->set_row(config::split_tokens(context.row_tokens(), exchange_->comm().size()));
}

at::Tensor UlyssesAttention::q_of(const at::Tensor& qkv) const {
  return qkv.narrow(1, 0, shape_.num_query_heads * shape_.head_dim);
}

at::Tensor UlyssesAttention::k_of(const at::Tensor& qkv) const {
  return qkv.narrow(1, shape_.num_query_heads * shape_.head_dim,
                    shape_.num_kv_heads * shape_.head_dim);
}

ops::RopeTable UlyssesAttention::rotation(const QkNormWeights& norm, const RowContext& context) {
  return norm.q.defined() ? ops::RopeTable{} : context.local_rope();
}

void UlyssesAttention::load_qkv(const MakeRows& make, const at::Tensor& like,
                                const QkNormWeights& norm, const RowContext& context,
                                AttentionSlots& slots) {
  const auto split = [&](LocalRows rows) {
    return dist::split_qkv(make(rows), model_->num_heads, model_->num_kv_heads, model_->head_dim);
  };
  slots.qkv = exchange_->seq_to_head_qkv(split, like, {}, rotation(norm, context)).fused;
  LONGHAUL_ASSERT(slots.qkv.defined() && slots.qkv.size(0) == context.row_tokens(),
                  "the exchange delivers every token of the row");
}

at::Tensor UlyssesAttention::ready_qkv(const QkNormWeights& norm, const RowContext& context,
                                       const AttentionSlots& slots) const {
  if (!norm.q.defined()) {
    return slots.qkv;
  }
  at::Tensor ready = at::empty_like(slots.qkv);
  const std::int64_t qk_columns = (shape_.num_query_heads + shape_.num_kv_heads) * shape_.head_dim;
  const std::int64_t v_columns = shape_.num_kv_heads * shape_.head_dim;
  ready.narrow(1, qk_columns, v_columns).copy_(slots.qkv.narrow(1, qk_columns, v_columns));
  ops::rms_norm(q_of(slots.qkv), norm.q, model_->rms_norm_eps, q_of(ready));
  ops::rms_norm(k_of(slots.qkv), norm.k, model_->rms_norm_eps, k_of(ready));
  ops::rope(q_of(ready), context.rope(), shape_.head_dim, ops::RopeDirection::kForward);
  ops::rope(k_of(ready), context.rope(), shape_.head_dim, ops::RopeDirection::kForward);
  return ready;
}

void UlyssesAttention::attend(const QkNormWeights& norm, const RowContext& context,
                              AttentionSlots& slots) {
  ops::AttentionOutput result =
      ops::attention_forward(ready_qkv(norm, context, slots), shape_, context.batch().cu_seqlens);
  slots.out = std::move(result.out);
  slots.lse = std::move(result.lse);
}

void UlyssesAttention::token_local_output(const AttentionSlots& slots, std::int64_t room,
                                          const UseRows& use) {
  at::Tensor local = slots.out;
  if (exchange_->comm().size() > 1) {
    local = ops::empty_with_room(exchange_->local_tokens(), model_->q_width(), room,
                                 slots.out.options());
  }
  exchange_->head_to_seq(as_heads(slots.out, shape_.head_dim), as_heads(local, shape_.head_dim),
                         [&](LocalRows rows) { use(rows, of_rows(local, rows)); });
}

void UlyssesAttention::undo_norm(const at::Tensor& gradient, const at::Tensor& raw,
                                 const at::Tensor& weight, std::int64_t param,
                                 GradSink& sink) const {
  const at::Tensor rstd = ops::rms_norm(raw, weight, model_->rms_norm_eps, at::Tensor());
  at::Tensor weight_gradient;
  if (param >= 0) {
    weight_gradient = sink.accumulator(param);
  }
  ops::rms_norm_backward(gradient, raw, weight, rstd, at::Tensor(), gradient, weight_gradient);
  if (param >= 0) {
    sink.finished(param);
  }
}

void UlyssesAttention::backward(const AttentionGradients& gradients, const at::Tensor& like,
                                const QkNormWeights& norm, const RowContext& context,
                                AttentionSlots& slots, GradSink& sink) {
  const auto make = [&](LocalRows rows) {
    return as_heads(gradients.make_dout(rows), shape_.head_dim);
  };
  dist::AlsoGathered du{.mine = gradients.du};
  at::Tensor dout_heads =
      as_rows(exchange_->head_to_seq_backward(make, like, gradients.beside, du));
  if (du.all.defined()) {
    gradients.use_du(du.all);
  }
  // Over q, k, v themselves: nobody reads them afterwards (with q/k norm they are a copy).
  const at::Tensor dqkv = ready_qkv(norm, context, slots);
  ops::attention_backward(dout_heads, dqkv, {slots.out, slots.lse}, shape_,
                          context.batch().cu_seqlens, dqkv);
  dout_heads.reset();
  slots.out.reset();
  slots.lse.reset();
  if (norm.q.defined()) {
    ops::rope(q_of(dqkv), context.rope(), shape_.head_dim, ops::RopeDirection::kInverse);
    ops::rope(k_of(dqkv), context.rope(), shape_.head_dim, ops::RopeDirection::kInverse);
    undo_norm(q_of(dqkv), q_of(slots.qkv), norm.q, norm.q_param, sink);
    undo_norm(k_of(dqkv), k_of(slots.qkv), norm.k, norm.k_param, sink);
  }
  slots.qkv.reset();
  const dist::Qkv head =
      dist::split_qkv(dqkv, shape_.num_query_heads, shape_.num_kv_heads, shape_.head_dim);
  at::Tensor local = dqkv;
  if (exchange_->comm().size() > 1) {
    local =
        ops::empty_with_room(exchange_->local_tokens(), model_->q_width() + 2 * model_->kv_width(),
                             gradients.dqkv_room, dqkv.options());
  }
  exchange_->seq_to_head_qkv_backward(
      head, local, rotation(norm, context), gradients.before_use,
      [&](LocalRows rows) { gradients.use_dqkv(rows, of_rows(local, rows)); });
  gradients.after_dqkv(local);
}

config::Range UlyssesAttention::output_columns() const {
  const config::Range heads = exchange_->my_heads().query_heads;
  return {heads.begin * shape_.head_dim, heads.end * shape_.head_dim};
}

}  // namespace longhaul::model
