// Small members of the shape structs: element counts, LoRA's scale, what a policy does with each
// slot.
#include "config/shapes.h"

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

}  // namespace longhaul::config
