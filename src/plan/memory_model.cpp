#include "plan/memory_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "config/sharding.h"

namespace longhaul::plan {
namespace {

using config::LayerPolicy;
using config::SlotAction;

/// Elements of the weights that the rank with most rows holds. Embedding and LM head are whole in
/// any case. (Room in slabs and its copies of adapters, about 1 %, are not counted.)
std::int64_t weight_elements(const MemoryRequest& request) {
  struct Group {
    std::int64_t layer = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
  };
  const std::vector<bool> is_cut = config::cut_over_ranks(request.registry);
  std::int64_t elements = 0;
  std::map<std::string, Group> groups;
  for (std::size_t i = 0; i < is_cut.size(); ++i) {
    const config::ParamSpec& spec = request.registry[i];
    if (request.shard_ranks > 1 && is_cut[i]) {
      Group& group = groups[config::fused_name(spec)];
      group.layer = spec.layer;
      group.rows += spec.shape[0];
      group.columns = spec.shape[1];
    } else {
      elements += spec.tied_to ? 0 : spec.num_elements();
    }
  }
  std::map<std::int64_t, std::int64_t> gathered;  // by layer
  for (const auto& [name, group] : groups) {
    elements +=
        config::split_tokens(group.rows, request.shard_ranks).front().size() * group.columns;
    gathered[group.layer] += group.rows * group.columns;
  }
  std::int64_t largest = 0;
  for (const auto& [layer, count] : gathered) {
    largest = std::max(largest, count);
  }
  return elements + std::min<std::int64_t>(2, static_cast<std::int64_t>(gathered.size())) * largest;
}

/// What the layers hold, walked as the passes do.
class LayerWalk {
 public:
  LayerWalk(const Sizes& sizes, std::span<const LayerPolicy> policies, std::int64_t lowest)
      : sizes_(sizes),
        policies_(policies),
        lowest_(static_cast<std::size_t>(lowest)),
        rebuilt_(config::rebuilt_inputs(policies, lowest)) {}

  [[nodiscard]] std::int64_t bytes(std::size_t layer, SlotAction action) const {
    return slots_with(sizes_, policies_[layer], action, !rebuilt_[layer]);
  }

  /// Of the nearest layer below `layer` that offloads: on its way beside this one's compute, out in
  /// the forward pass and back in the backward pass.
  [[nodiscard]] std::int64_t travelling_below(std::size_t layer) const {
    while (layer-- > lowest_) {
      if (const std::int64_t host = bytes(layer, SlotAction::kHost); host > 0) {
        return host;
      }
    }
    return 0;
  }

  /// Most that all layers hold at once: layer by layer, what those below it keep, all of its own,
  /// and what travels.
  [[nodiscard]] std::int64_t backward_peak(const LayerForm& form) const {
    std::int64_t below = 0;
    std::int64_t peak = 0;
    for (std::size_t i = lowest_; i < policies_.size(); ++i) {
      std::int64_t now = below + backward_bytes(sizes_, policies_[i], form);
      std::size_t lowest_present = i;
      if (rebuilt_[i]) {
        lowest_present = i - 1;
        // Re-run for this layer's input, and used again in its own turn.
        now += rerun_bytes(sizes_) - bytes(i - 1, SlotAction::kKeep);
      }
      peak = std::max(peak, now + travelling_below(lowest_present));
      below += bytes(i, SlotAction::kKeep);
    }
    return peak;
  }

 private:
  const Sizes& sizes_;
  std::span<const LayerPolicy> policies_;
  std::size_t lowest_;
  std::vector<bool> rebuilt_;
};

/// Products of fewer rows than the first reach a smaller share of the peak.
constexpr std::array<std::int64_t, 2> kGpuTileRows = {8192, 2048};
constexpr std::array<std::int64_t, 2> kCpuTileRows = {1024, 256};

/// From the one that costs nothing to the one that needs least.
std::vector<LayerForm> forms(bool on_gpu, std::int64_t kv_heads, bool can_rerun_u) {
  std::vector<LayerForm> result;
  for (std::int64_t groups = 1; groups <= kv_heads; groups *= 2) {
    result.push_back({.attention_groups = groups});
  }
  for (const std::int64_t rows : mlp_tile_rows(on_gpu)) {
    result.push_back({result.back().attention_groups, rows});
  }
  if (can_rerun_u) {
    result.push_back(result.back());
    result.back().reruns_u = true;
  }
  return result;
}

}  // namespace

std::span<const std::int64_t> mlp_tile_rows(bool on_gpu) {
  return on_gpu ? kGpuTileRows : kCpuTileRows;
}

MemoryModel::MemoryModel(const MemoryRequest& request)
    : request_(request),
      sizes_(sizes_of(request)),
      lowest_(config::lowest_backward_layer(request.registry, request.model->num_layers)),
      layers_(layer_shapes(request.registry, request.model->num_layers)) {
  fixed_.weights = weight_elements(request) * sizes_.element;
  const auto moment_bytes = static_cast<std::int64_t>(base::dtype_bytes(request.optimizer_dtype));
  for (const config::ParamSpec& spec : request.registry) {
    if (spec.tied_to || !spec.trainable) {
      continue;
    }
    const std::int64_t count = spec.num_elements();
    fixed_.gradients += count * 4;
    fixed_.optimizer += count * 2 * moment_bytes;
    fixed_.masters += request.dtype == base::Dtype::kFloat32 ? 0 : count * 4;
  }
}

std::int64_t MemoryModel::kept_u_bytes(std::span<const LayerPolicy> policies,
                                       const LayerForm& form) const {
  std::int64_t columns = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto kept = [&](config::Slot slot, std::int64_t of_product) {
      const bool runs_again = policies[i].action(slot) == SlotAction::kRerun;
      return form.reruns_u && runs_again ? 0 : of_product;
    };
    const LayerShape& layer = layers_[i];
    columns += kept(config::Slot::kQkv, layer.attention_in.lora_columns) +
               kept(config::Slot::kResidual, layer.attention_out.lora_columns) +
               kept(config::Slot::kGateUp, layer.mlp_in.lora_columns + layer.mlp_down.lora_columns);
  }
  return columns * sizes_.local * sizes_.element;
}

std::int64_t MemoryModel::rerun_u_bytes(std::span<const LayerPolicy> policies,
                                        const LayerForm& form) const {
  if (!form.reruns_u) {
    return 0;
  }
  const std::int64_t tile = rows_of_mlp_tile(sizes_, form);
  const std::vector<bool> rebuilt = config::rebuilt_inputs(policies, lowest_);
  std::int64_t most = 0;  // elements
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerShape& layer = layers_[i];
    const std::int64_t attention =
        sizes_.local * (layer.attention_in.lora_columns + layer.attention_out.lora_columns);
    const std::int64_t mlp = layer.mlp_in.lora_columns + layer.mlp_down.lora_columns;
    const std::int64_t own = attention + tile * mlp;
    // The layer below is run again, with its MLP, for this one's input.
    most = std::max(most, rebuilt[i] ? own + attention + sizes_.local * mlp : own);
  }
  return most * sizes_.element;
}

bool MemoryModel::can_rerun_u(std::span<const LayerPolicy> policies) const {
  return kept_u_bytes(policies, {.reruns_u = true}) < kept_u_bytes(policies, {});
}

RankBytes MemoryModel::bytes(std::span<const LayerPolicy> policies, const LayerForm& form) const {
  RankBytes bytes = fixed_;
  const LayerWalk walk(sizes_, policies, lowest_);
  for (auto i = static_cast<std::size_t>(lowest_); i < policies.size(); ++i) {
    bytes.activations += walk.bytes(i, SlotAction::kKeep);
    bytes.host += walk.bytes(i, SlotAction::kHost);
  }
  const std::int64_t head =
      bytes.activations + walk.travelling_below(policies.size()) + head_bytes(sizes_, form);
  const std::int64_t rope = sizes_.row * sizes_.half_head * 2 * 4;
  bytes.working_set = exchange_bytes(sizes_) + rope + std::max(walk.backward_peak(form), head) -
                      bytes.activations + rerun_u_bytes(policies, form);
  bytes.activations += kept_u_bytes(policies, form);
  return bytes;
}

MemoryPlan MemoryModel::plan(std::vector<LayerPolicy> policies) const {
  MemoryPlan plan;
  plan.policies = std::move(policies);
  const std::vector<LayerForm> candidates =
      request_.form ? std::vector{*request_.form}
                    : forms(request_.on_gpu, sizes_.my_kv_heads, can_rerun_u(plan.policies));
  for (const LayerForm& form : candidates) {
    plan.form = form;
    plan.bytes = bytes(plan.policies, form);
    plan.attention_kernel_bytes = attention_kernel_bytes(sizes_, form.attention_groups);
    plan.fits = (!request_.limit_bytes || plan.bytes.total() <= *request_.limit_bytes) &&
                (!request_.host_limit_bytes || plan.bytes.host <= *request_.host_limit_bytes);
    if (plan.fits) {
      break;
    }
  }
  return plan;
}

}  // namespace longhaul::plan
