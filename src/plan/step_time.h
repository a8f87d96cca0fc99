// The seconds of one optimizer step on one rank, predicted from shapes, policies and the rates of a
// device (docs/performance.md, "How step times are predicted"). Measured rates, no fitted ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/layer_bytes.h"
#include "plan/layer_time.h"
#include "plan/memory_plan.h"

namespace longhaul::plan {

/// For GPUs. What does not depend on policies and form is worked out once.
class StepTimeModel {
 public:
  /// `request` must outlive this object. Its row is the one whose time is predicted.
  explicit StepTimeModel(const MemoryRequest& request);

  /// Forward and backward pass of one row under `policies`, one per layer; sp rank 0, which has the
  /// most tokens and heads.
  [[nodiscard]] StepSeconds row(std::span<const config::LayerPolicy> policies,
                                const LayerForm& form) const;
  /// What follows the rows of a step: gradients summed over the ranks, their norm, the optimizer.
  [[nodiscard]] StepSeconds update() const;
  /// A layer's forward pass, the shortest of all layers', under which copies may hide.
  [[nodiscard]] double forward_seconds() const;
  /// A copy of `bytes` from the device to the host.
  [[nodiscard]] double to_host_seconds(std::int64_t bytes) const;

 private:
  struct Passes;

  [[nodiscard]] LayerTime layer(std::size_t index, const LayerForm& form) const;
  [[nodiscard]] StepSeconds head(const LayerForm& form) const;
  [[nodiscard]] Passes passes(std::span<const config::LayerPolicy> policies,
                              const LayerForm& form) const;
  [[nodiscard]] double exposed_copies(std::span<const config::LayerPolicy> policies,
                                      const Passes& passes) const;
  [[nodiscard]] double exposed_gathers(const Passes& passes) const;

  const MemoryRequest& request_;
  Sizes sizes_;
  std::vector<LayerShape> shapes_;
  std::size_t lowest_;           // layer that has a backward pass
  std::vector<double> gathers_;  // seconds of gathering each layer's weights; empty: not sharded
  std::int64_t trained_ = 0;     // elements of all trained parameters
  bool trains_head_ = false;
};

/// A step of `rows` rows one after the other, and the update.
StepSeconds step_seconds(const MemoryRequest& request,
                         std::span<const config::LayerPolicy> policies, const LayerForm& form,
                         std::int64_t rows = 1);

}  // namespace longhaul::plan
