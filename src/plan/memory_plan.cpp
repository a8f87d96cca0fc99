#include "plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/activation_policy.h"

namespace longhaul::plan {
namespace {

using config::ActivationPreset;
using config::LayerPolicy;
using config::Slot;

/// Sizes of sp rank 0, in elements per row.
struct Sizes {
  std::int64_t element = 4;  // bytes
  std::int64_t local = 0;    // S
  std::int64_t row = 0;      // T
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;
  std::int64_t q_width = 0;     // all query heads
  std::int64_t my_q_width = 0;  // this rank's heads
  std::int64_t my_kv_width = 0;
  std::int64_t my_heads = 0;
  std::int64_t half_head = 0;
  std::int64_t vocab = 0;
  std::int64_t targets = 0;  // target rows of the shard
  bool on_gpu = false;
  bool widens = false;  // trained 16-bit base weights: their products' operands are widened to fp32
};

Sizes sizes_of(const MemoryRequest& request) {
  const config::ModelConfig& model = *request.model;
  const auto heads = config::split_heads(model.num_heads, model.num_kv_heads, request.mesh.sp);
  // Every rank counts for itself; the largest share of heads and tokens is rank 0's.
  const config::RankHeads& mine = heads.front();
  Sizes sizes;
  sizes.element = static_cast<std::int64_t>(base::dtype_bytes(request.dtype));
  sizes.row = request.row_tokens;
  sizes.local = config::split_tokens(request.row_tokens, request.mesh.sp).front().size();
  sizes.hidden = model.hidden_size;
  sizes.ffn = model.intermediate_size;
  sizes.q_width = model.q_width();
  sizes.my_heads = mine.num_query_heads();
  sizes.my_q_width = mine.num_query_heads() * model.head_dim;
  sizes.my_kv_width = mine.num_kv_heads() * model.head_dim;
  sizes.half_head = model.head_dim / 2;
  sizes.vocab = model.vocab_size;
  sizes.on_gpu = request.on_gpu;
  sizes.targets = std::min(sizes.local, request.row_targets);
  sizes.widens = sizes.element < 4 &&
                 std::any_of(request.registry.begin(), request.registry.end(),
                             [](const auto& spec) { return spec.trainable && !spec.in_adapter; });
  return sizes;
}

std::int64_t slot_bytes(const Sizes& s, Slot slot) {
  switch (slot) {
    case Slot::kInput:
    case Slot::kResidual:
      return s.local * s.hidden * s.element;
    case Slot::kQkv:
      return s.row * (s.my_q_width + 2 * s.my_kv_width) * s.element;
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

constexpr std::array kSlots = {Slot::kInput, Slot::kQkv,      Slot::kAttnOut,
                               Slot::kLse,   Slot::kResidual, Slot::kGateUp};

std::int64_t layer_bytes(const Sizes& s, const LayerPolicy& policy, bool keeps_input) {
  std::int64_t bytes = 0;
  for (const Slot slot : kSlots) {
    const bool kept = policy.action(slot) != config::SlotAction::kRerun;
    if (kept && (slot != Slot::kInput || keeps_input)) {
      bytes += slot_bytes(s, slot);
    }
  }
  return bytes;
}

std::int64_t all_slots(const Sizes& s) {
  std::int64_t bytes = 0;
  for (const Slot slot : kSlots) {
    bytes += slot_bytes(s, slot);
  }
  return bytes;
}

/// LoRA's u of every module, always kept.
std::int64_t lora_bytes(const MemoryRequest& request, const Sizes& s) {
  std::int64_t columns = 0;
  for (const config::ParamSpec& spec : request.registry) {
    if (spec.kind == config::ParamKind::kLoraA) {
      columns += spec.shape[0];
    }
  }
  return columns * s.local * s.element;
}

/// Temporaries of the layer in backward beyond its own slots.
std::int64_t backward_working_set(const Sizes& s) {
  const std::int64_t token_local = s.local * s.element;
  const std::int64_t fused = s.row * (s.my_q_width + 2 * s.my_kv_width) * s.element;
  const std::int64_t dout_heads = s.row * s.my_q_width * s.element;
  // The MLP part: dy, the product's input, the normed input. The attention part: dr, dO twice (both
  // layouts), the fused gradient and the kernel's own copies of it.
  const std::int64_t widened = s.widens ? s.local * (2 * s.ffn + s.hidden) * 4 : 0;
  const std::int64_t mlp = token_local * (2 * s.hidden + s.ffn) + widened;
  const std::int64_t attention = token_local * (s.hidden + s.q_width) + dout_heads + 2 * fused;
  return std::max(mlp, attention);
}

std::int64_t head_working_set(const Sizes& s) {
  const std::int64_t tile_rows =
      std::min(s.targets, config::logits_tile_rows(s.vocab, s.element, s.on_gpu));
  const std::int64_t widened = s.widens ? tile_rows * (s.vocab + s.hidden) * 4 : 0;
  return (s.local * 2 * s.hidden + s.targets * 2 * s.hidden + tile_rows * s.vocab) * s.element +
         widened;
}

}  // namespace

RankBytes rank_bytes(const MemoryRequest& request, std::span<const LayerPolicy> policies) {
  const Sizes s = sizes_of(request);
  RankBytes bytes;
  for (const config::ParamSpec& spec : request.registry) {
    if (spec.tied_to) {
      continue;
    }
    const std::int64_t count = spec.num_elements();
    bytes.weights += count * s.element;
    if (spec.trainable) {
      bytes.gradients += count * 4;
      bytes.optimizer += count * 8;
      bytes.masters += request.dtype == base::Dtype::kFloat32 ? 0 : count * 4;
    }
  }
  std::int64_t smallest_layer = all_slots(s);
  const std::int64_t lowest =
      config::lowest_backward_layer(request.registry, request.model->num_layers);
  const std::vector<bool> rebuilt = config::rebuilt_inputs(policies, lowest);
  for (auto i = static_cast<std::size_t>(lowest); i < policies.size(); ++i) {
    const std::int64_t layer = layer_bytes(s, policies[i], !rebuilt[i]);
    bytes.activations += layer;
    smallest_layer = std::min(smallest_layer, layer);
  }
  bytes.activations += lora_bytes(request, s);
  const std::int64_t rope = s.row * s.half_head * 2 * 4;
  const std::int64_t rerun = all_slots(s) - smallest_layer;
  bytes.working_set = rope + std::max(backward_working_set(s) + rerun, head_working_set(s));
  return bytes;
}

std::string policy_text(std::span<const LayerPolicy> policies) {
  constexpr std::array kNames = {"A", "B", "C", "D", "D2"};
  std::string text;
  for (std::size_t begin = 0; begin < policies.size();) {
    std::size_t end = begin;
    while (end < policies.size() && policies[end] == policies[begin]) {
      ++end;
    }
    text += fmt::format("{}{}x{}{}", text.empty() ? "" : ",", end - begin,
                        kNames[static_cast<std::size_t>(policies[begin].preset)],
                        policies[begin].offload ? "+offload" : "");
    begin = end;
  }
  return text;
}

MemoryPlan make_memory_plan(const MemoryRequest& request) {
  MemoryPlan plan;
  plan.policies =
      config::activation_policy_of_layers(request.activation_policy, request.model->num_layers);
  const auto fits = [&] {
    plan.bytes = rank_bytes(request, plan.policies);
    plan.fits = !request.limit_bytes || plan.bytes.total() <= *request.limit_bytes;
    return plan.fits;
  };
  if (!plan.policies.empty()) {
    fits();
    return plan;
  }
  const auto layers = static_cast<std::size_t>(request.model->num_layers);
  plan.policies.assign(layers, LayerPolicy{});
  if (fits()) {
    return plan;
  }
  for (const ActivationPreset preset :
       {ActivationPreset::kB, ActivationPreset::kC, ActivationPreset::kD, ActivationPreset::kD2}) {
    for (std::size_t layer = layers; layer-- > 0;) {
      plan.policies[layer].preset = preset;
      if (fits()) {
        return plan;
      }
    }
  }
  return plan;
}

}  // namespace longhaul::plan
