#include "model/slot_offload.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ops/backend.h"

namespace longhaul::model {
namespace {

using config::Slot;

/// The slots that a policy may send to the host, in the order in which groups hold them.
std::array<std::pair<Slot, at::Tensor*>, 6> big_slots(LayerSlots& slots) {
  return {{{Slot::kInput, &slots.input},
           {Slot::kQkv, &slots.attention.qkv},
           {Slot::kAttnOut, &slots.attention.out},
           {Slot::kLse, &slots.attention.lse},
           {Slot::kResidual, &slots.residual},
           {Slot::kGateUp, &slots.mlp.gate_up}}};
}

}  // namespace

SlotOffload::SlotOffload(std::vector<config::LayerPolicy> policies, at::Device device,
                         ops::HostBudget budget)
    : policies_(std::move(policies)), handles_(policies_.size()) {
  if (std::any_of(policies_.begin(), policies_.end(),
                  [](const auto& policy) { return policy.offload; })) {
    host_ = std::make_unique<ops::HostSlots>(ops::backend_of(device).host_copier(), budget);
  }
}

void SlotOffload::begin(std::int64_t row_tokens) {
  if (host_) {
    std::fill(handles_.begin(), handles_.end(), std::nullopt);
    host_->begin(row_tokens);
  }
}

void SlotOffload::before_layer() {
  if (host_) {
    host_->settle();
  }
}

void SlotOffload::after_layer(std::int64_t layer, LayerSlots& slots) {
  const auto i = static_cast<std::size_t>(layer);
  std::vector<at::Tensor> group;
  bool any = false;
  for (const auto& [slot, tensor] : big_slots(slots)) {
    const bool leaves = policies_[i].action(slot) == config::SlotAction::kHost;
    group.push_back(leaves ? std::exchange(*tensor, at::Tensor()) : at::Tensor());
    any = any || group.back().defined();
  }
  if (any) {
    handles_[i] = host_->put(std::move(group));
  }
}

void SlotOffload::bring_back(std::int64_t layer, LayerSlots& slots) {
  std::optional<ops::HostSlots::Handle>& handle = handles_[static_cast<std::size_t>(layer)];
  if (!handle) {
    return;
  }
  std::vector<at::Tensor> group = host_->take(*handle);
  handle.reset();
  std::size_t position = 0;
  for (const auto& [slot, tensor] : big_slots(slots)) {
    at::Tensor& returned = group[position++];
    if (returned.defined()) {
      *tensor = std::move(returned);
    }
  }
}

void SlotOffload::prefetch_below(std::int64_t layer) {
  for (auto i = static_cast<std::size_t>(layer); i-- > 0;) {
    if (handles_[i]) {
      host_->prefetch(*handles_[i]);
      return;
    }
  }
}

}  // namespace longhaul::model
