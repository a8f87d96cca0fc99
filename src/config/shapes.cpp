// Small members of the shape structs and the pure rules that plan and model share.
#include "config/shapes.h"

#include <algorithm>
#include <cmath>

namespace longhaul::config {

std::int64_t ParamSpec::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    count *= size;
  }
  return count;
}

double LoraSpec::scale() const {
  const auto r = static_cast<double>(rank);
  return rslora ? alpha / std::sqrt(r) : alpha / r;
}

SlotAction LayerPolicy::action(Slot slot) const {
  bool keep = slot == Slot::kInput;
  switch (preset) {
    case ActivationPreset::kA:
      keep = true;
      break;
    case ActivationPreset::kB:
      keep = slot != Slot::kGateUp;
      break;
    case ActivationPreset::kC:
      keep = keep || slot == Slot::kAttnOut || slot == Slot::kLse;
      break;
    case ActivationPreset::kD:
    case ActivationPreset::kD2:
      break;
  }
  if (!keep) {
    return SlotAction::kRerun;
  }
  return offload ? SlotAction::kHost : SlotAction::kKeep;
}

std::int64_t lowest_backward_layer(std::span<const ParamSpec> registry, std::int64_t num_layers) {
  std::int64_t lowest = num_layers;
  for (const ParamSpec& spec : registry) {
    if (spec.trainable && spec.kind == ParamKind::kEmbedding) {
      return 0;
    }
    if (spec.trainable && spec.layer >= 0) {
      lowest = std::min(lowest, spec.layer);
    }
  }
  return lowest;
}

std::vector<bool> rebuilt_inputs(std::span<const LayerPolicy> policies,
                                 std::int64_t lowest_backward_layer) {
  std::vector<bool> rebuilt(policies.size(), false);
  for (auto i = static_cast<std::size_t>(lowest_backward_layer) + 1; i < policies.size(); ++i) {
    rebuilt[i] = policies[i].preset == ActivationPreset::kD2 &&
                 policies[i - 1].preset == ActivationPreset::kD2 && !rebuilt[i - 1];
  }
  return rebuilt;
}

std::int64_t logits_tile_rows(std::int64_t vocab_size, std::int64_t element_bytes, bool on_gpu) {
  const std::int64_t tile_bytes = (on_gpu ? std::int64_t{320} : std::int64_t{64}) << 20;
  const std::int64_t rows =
      std::clamp<std::int64_t>(tile_bytes / (vocab_size * element_bytes), 16, 4096);
  constexpr std::int64_t kBlock = 128;  // rows of a GPU product's block
  return on_gpu && rows > kBlock ? rows / kBlock * kBlock : rows;
}

}  // namespace longhaul::config
