#include "plan/layer_bytes.h"

#include <algorithm>
#include <array>

#include "base/ceil_div.h"
#include "config/kernel_memory.h"

namespace longhaul::plan {
namespace {

using config::Slot;

constexpr std::array kSlots = {Slot::kInput, Slot::kQkv,      Slot::kAttnOut,
                               Slot::kLse,   Slot::kResidual, Slot::kGateUp};

/// Bytes of the gradient of q, k, v of this rank's heads.
std::int64_t fused_bytes(const Sizes& s) {
  return s.row * (s.my_q_width + 2 * s.my_kv_width) * s.element;
}

/// `bytes` of all heads → those of the largest group of KV heads.
std::int64_t of_one_group(std::int64_t bytes, const Sizes& s, std::int64_t groups) {
  const std::int64_t heads = base::ceil_div(s.my_kv_heads, groups);
  return bytes / s.my_kv_heads * heads;
}

/// A masked copy of an adapter's input.
std::int64_t masked_bytes(const Sizes& s, std::int64_t rows, std::int64_t columns) {
  return s.masks ? std::min(config::kMaskedBytes, rows * columns * s.element) : 0;
}

std::int64_t mlp_stage(const Sizes& s, const config::LayerPolicy& policy, const LayerForm& form) {
  const std::int64_t tile = rows_of_mlp_tile(s, form);
  const bool kept = policy.action(Slot::kGateUp) != config::SlotAction::kRerun;
  const std::int64_t gate_up = slot_bytes(s, Slot::kGateUp);
  const std::int64_t widened = s.widens ? tile * (2 * s.ffn + s.hidden) * 4 : 0;
  // The slots, the product's input, d(y) and the normed input that becomes d(residual).
  return rerun_bytes(s) + (kept || s.local == 0 ? gate_up : gate_up / s.local * tile) +
         tile * s.ffn * s.element + 2 * s.local * s.hidden * s.element + widened +
         masked_bytes(s, tile, s.ffn);
}

std::int64_t attention_stage(const Sizes& s, const LayerForm& form) {
  const std::int64_t slots = slot_bytes(s, Slot::kInput) + slot_bytes(s, Slot::kQkv) +
                             slot_bytes(s, Slot::kAttnOut) + slot_bytes(s, Slot::kLse);
  // d(residual), d(O) in one or both layouts (in the memory that peers write, on GPUs), and q, k after their norm;
  // d(q, k, v) takes the place of q, k, v.
  const bool has_both = s.exchanges && !s.on_gpu;
  const std::int64_t gradients = s.local * (s.hidden + s.q_width) * s.element +
                                 (has_both ? s.row * s.my_q_width * s.element : 0) +
                                 (s.qk_norm ? fused_bytes(s) : 0);
  return slots + gradients +
         std::max(attention_kernel_bytes(s, form.attention_groups),
                  masked_bytes(s, s.local, std::max(s.hidden, s.q_width)));
}

}  // namespace

Sizes sizes_of(const MemoryRequest& request) {
  const config::ModelConfig& model = *request.model;
  const auto heads = config::split_heads(model.num_heads, model.num_kv_heads, request.mesh.sp);
  const config::RankHeads& mine = heads.front();
  Sizes sizes;
  sizes.element = static_cast<std::int64_t>(base::dtype_bytes(request.dtype));
  sizes.row = request.row_tokens;
  sizes.local = config::split_tokens(request.row_tokens, request.mesh.sp).front().size();
  sizes.hidden = model.hidden_size;
  sizes.ffn = model.intermediate_size;
  sizes.q_width = model.q_width();
  sizes.kv_width = model.num_kv_heads * model.head_dim;
  sizes.my_heads = mine.num_query_heads();
  sizes.my_kv_heads = mine.num_kv_heads();
  sizes.my_q_width = mine.num_query_heads() * model.head_dim;
  sizes.my_kv_width = mine.num_kv_heads() * model.head_dim;
  sizes.half_head = model.head_dim / 2;
  sizes.vocab = model.vocab_size;
  sizes.attended = std::min(request.attended_length, static_cast<double>(request.row_tokens));
  sizes.on_gpu = request.on_gpu;
  sizes.attention = request.attention;
  sizes.exchanges = request.mesh.sp > 1;
  sizes.masks = request.lora_dropout > 0;
  sizes.qk_norm = model.qk_norm;
  sizes.targets = std::min(sizes.local, request.row_targets);
  sizes.widens = sizes.element < 4 &&
                 std::any_of(request.registry.begin(), request.registry.end(),
                             [](const auto& spec) { return spec.trainable && !spec.in_adapter; });
  return sizes;
}

std::int64_t attention_kernel_bytes(const Sizes& s, std::int64_t groups) {
  const std::int64_t results = of_one_group(fused_bytes(s), s, groups);
  if (!s.on_gpu) {
    return results;
  }
  constexpr std::int64_t kMultiprocessors = 148;  // of the largest devices; an H200 has 132
  const bool is_split = s.attention == AttentionKind::kDeterministicFlash && s.element < 4;
  const std::int64_t splits =
      is_split ? base::ceil_div(kMultiprocessors, of_one_group(s.my_heads, s, groups)) : 1;
  const std::int64_t rows =
      s.attention == AttentionKind::kCudnn ? s.row : config::most_flash_rows(s.row);
  const std::int64_t expanded =
      rows * s.my_q_width * 4 * splits + s.row * s.my_q_width * 2 * s.element;
  // The float32 kernel reads k and v expanded, too.
  const std::int64_t inputs = s.element == 4 ? s.row * s.my_q_width * 2 * s.element : 0;
  return results + of_one_group(expanded + inputs, s, groups);
}

std::int64_t slot_bytes(const Sizes& s, Slot slot) {
  switch (slot) {
    case Slot::kInput:
    case Slot::kResidual:
      return s.local * s.hidden * s.element;
    case Slot::kQkv:
      return fused_bytes(s);
    case Slot::kAttnOut:
      return s.row * s.my_q_width * s.element;
    case Slot::kLse:
      return s.row * s.my_heads * 4;
    case Slot::kGateUp:
      return s.local * 2 * s.ffn * s.element;
    case Slot::kCount:
      break;
  }
  return 0;
}

std::int64_t slots_with(const Sizes& s, const config::LayerPolicy& policy,
                        config::SlotAction action, bool holds_input) {
  std::int64_t bytes = 0;
  for (const Slot slot : kSlots) {
    if (policy.action(slot) == action && (slot != Slot::kInput || holds_input)) {
      bytes += slot_bytes(s, slot);
    }
  }
  return bytes;
}

std::int64_t rerun_bytes(const Sizes& s) {
  std::int64_t bytes = 0;
  for (const Slot slot : kSlots) {
    bytes += slot == Slot::kGateUp ? 0 : slot_bytes(s, slot);
  }
  return bytes;
}

std::int64_t backward_bytes(const Sizes& s, const config::LayerPolicy& policy,
                            const LayerForm& form) {
  return std::max(mlp_stage(s, policy, form), attention_stage(s, form));
}

std::int64_t exchange_bytes(const Sizes& s) {
  if (!s.exchanges || !s.on_gpu) {
    return 0;
  }
  const std::int64_t all = s.q_width + 2 * s.kv_width;
  const std::int64_t mine = s.my_q_width + 2 * s.my_kv_width;
  return (std::max(s.row * mine, s.local * all) + s.local * (all - mine)) * s.element;
}

std::int64_t rows_of_mlp_tile(const Sizes& s, const LayerForm& form) {
  return form.mlp_tile_rows > 0 ? std::min(form.mlp_tile_rows, s.local) : s.local;
}

std::int64_t logits_tile_rows(const Sizes& s, const LayerForm& form) {
  return form.logits_tile_rows > 0 ? form.logits_tile_rows
                                   : config::logits_tile_rows(s.vocab, s.element, s.on_gpu);
}

std::int64_t head_bytes(const Sizes& s, const LayerForm& form) {
  const std::int64_t tile_rows = std::min(s.targets, logits_tile_rows(s, form));
  const std::int64_t widened = s.widens ? tile_rows * (s.vocab + s.hidden) * 4 : 0;
  return (s.local * 2 * s.hidden + s.targets * 2 * s.hidden + tile_rows * s.vocab) * s.element +
         widened;
}

}  // namespace longhaul::plan
