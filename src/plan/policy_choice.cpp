#include "plan/policy_choice.h"

#include <algorithm>
#include <array>
#include <optional>

#include "plan/memory_model.h"
#include "plan/step_time.h"

namespace longhaul::plan {
namespace {

using config::ActivationPreset;
using config::LayerPolicy;

constexpr std::array kPresets = {ActivationPreset::kA, ActivationPreset::kB, ActivationPreset::kC,
                                 ActivationPreset::kD, ActivationPreset::kD2};

bool reruns_nothing(const MemoryPlan& plan) {
  return std::all_of(plan.policies.begin(), plan.policies.end(),
                     [](const auto& policy) { return rerun_share(policy.preset) == 0; });
}

/// The way to the host may be shared by two devices.
bool hides_copies(const Sizes& sizes, const StepTimeModel& time, ActivationPreset preset) {
  const std::int64_t bytes = slots_with(sizes, {.preset = preset, .offload = true},
                                        config::SlotAction::kHost, /*holds_input=*/true);
  return 2 * time.to_host_seconds(bytes) <= time.forward_seconds();
}

/// Walks mixes, from the one that re-runs least, until one fits.
class Ladder {
 public:
  Ladder(const MemoryRequest& request, const MemoryModel& model)
      : request_(request),
        model_(model),
        policies_(static_cast<std::size_t>(request.model->num_layers)) {}

  /// `offloaded` is the preset with offload that layers may go to.
  MemoryPlan walk(std::optional<ActivationPreset> offloaded) {
    if (!fits() && !(offloaded && offload_from_below(*offloaded))) {
      rerun_from_above();
    }
    return std::move(plan_);
  }

 private:
  bool fits() {
    plan_ = model_.plan(policies_);
    return plan_.fits;
  }

  bool offload_from_below(ActivationPreset preset) {
    for (LayerPolicy& policy : policies_) {
      policy = {.preset = preset, .offload = true};
      if (model_.bytes(policies_, {}).host > *request_.host_limit_bytes) {
        policy = {};
        return false;
      }
      if (fits()) {
        return true;
      }
    }
    return false;
  }

  void rerun_from_above() {
    for (const ActivationPreset preset : kPresets) {
      for (std::size_t layer = policies_.size(); layer-- > 0;) {
        if (!policies_[layer].offload) {
          policies_[layer].preset = preset;
          if (fits()) {
            return;
          }
        }
      }
    }
  }

  const MemoryRequest& request_;
  const MemoryModel& model_;
  std::vector<LayerPolicy> policies_;
  MemoryPlan plan_;
};

}  // namespace

double rerun_share(ActivationPreset preset) {
  // Matrix products of a forward pass by FLOPs; attention, which only D re-runs, counts more the
  // longer the row is.
  switch (preset) {
    case ActivationPreset::kA:
      return 0.0;
    case ActivationPreset::kB:
      return 0.12;
    case ActivationPreset::kC:
      return 0.18;
    case ActivationPreset::kD:
      return 0.28;
    case ActivationPreset::kD2:
      return 0.39;  // the first of a pair re-runs its MLP for the second, and gate and up again
  }
  return 0.0;
}

MemoryPlan choose_policies(const MemoryRequest& request) {
  const MemoryModel model(request);
  MemoryPlan best = Ladder(request, model).walk(std::nullopt);
  if (!request.on_gpu || !request.host_limit_bytes || (best.fits && reruns_nothing(best))) {
    return best;
  }
  const StepTimeModel time(request);
  const auto seconds = [&](const MemoryPlan& plan) {
    return time.row(plan.policies, plan.form).total();
  };
  for (const ActivationPreset preset : kPresets) {
    const bool checkpoint = preset == ActivationPreset::kD || preset == ActivationPreset::kD2;
    if (!checkpoint && !hides_copies(model.sizes(), time, preset)) {
      continue;
    }
    MemoryPlan other = Ladder(request, model).walk(preset);
    const bool faster = other.fits && seconds(other) < seconds(best);
    const bool smaller = !other.fits && other.bytes.total() < best.bytes.total();
    if (best.fits ? faster : other.fits || smaller) {
      best = std::move(other);
    }
  }
  return best;
}

}  // namespace longhaul::plan
