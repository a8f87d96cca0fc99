// Moves the slots of layers whose policy offloads to the host and back, beside compute.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "config/shapes.h"
#include "model/decoder_layer.h"
#include "ops/host_slots.h"

namespace longhaul::model {

/// Driven by the layer walker. Every call is a no-op for layers that do not offload. LoRA's small u
/// stay on the device.
///
/// Order   begin(); per layer of the forward pass before_layer(), after_layer(); before_layer(); in
///         the backward pass bring_back() then prefetch_below() per layer, downwards
class SlotOffload {
 public:
  /// `policies` has one entry per layer.
  SlotOffload(std::vector<config::LayerPolicy> policies, at::Device device, ops::HostBudget budget);

  void begin(std::int64_t row_tokens);
  /// Frees what has left by now: at most one layer's slots are on their way beside the next layer's
  /// compute.
  void before_layer();
  /// Sends off the host slots of a layer that its forward pass has just filled.
  void after_layer(std::int64_t layer, LayerSlots& slots);
  /// Puts the layer's host slots back, waiting for what is not there yet; once per layer, later
  /// calls do nothing.
  void bring_back(std::int64_t layer, LayerSlots& slots);
  /// Starts fetching the next layer below `layer` that has slots on the host.
  void prefetch_below(std::int64_t layer);

  /// Bytes of host memory held; 0 when no layer offloads.
  [[nodiscard]] std::int64_t host_bytes() const { return host_ ? host_->host_bytes() : 0; }

 private:
  std::vector<config::LayerPolicy> policies_;
  std::unique_ptr<ops::HostSlots> host_;  // null: no layer offloads
  std::vector<std::optional<ops::HostSlots::Handle>> handles_;
};

}  // namespace longhaul::model
