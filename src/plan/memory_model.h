// The bytes of a request as a function of policies and form. What depends on neither is counted
// once: a choice asks for thousands of mixes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/layer_bytes.h"
#include "plan/layer_time.h"
#include "plan/memory_plan.h"

namespace longhaul::plan {

/// Rows of an MLP tile where the MLP runs in tiles, from the one that costs least on.
std::span<const std::int64_t> mlp_tile_rows(bool on_gpu);

class MemoryModel {
 public:
  /// `request` must outlive this object.
  explicit MemoryModel(const MemoryRequest& request);

  [[nodiscard]] const Sizes& sizes() const { return sizes_; }
  /// As rank_bytes() promises.
  [[nodiscard]] RankBytes bytes(std::span<const config::LayerPolicy> policies,
                                const LayerForm& form) const;
  /// The plan under given policies, in the first form that fits: attention in 1, 2, 4 … groups up
  /// to the rank's KV heads, then the MLP in tiles of 8192 and of 2048 rows as well (on the CPU
  /// 1024 and 256), then also without LoRA's u of what runs again, or in the one that the request
  /// names. When none fits, in the last one.
  [[nodiscard]] MemoryPlan plan(std::vector<config::LayerPolicy> policies) const;

 private:
  /// LoRA's u that the layers keep.
  [[nodiscard]] std::int64_t kept_u_bytes(std::span<const config::LayerPolicy> policies,
                                          const LayerForm& form) const;
  /// Those that exist for a while because they are made again.
  [[nodiscard]] std::int64_t rerun_u_bytes(std::span<const config::LayerPolicy> policies,
                                           const LayerForm& form) const;
  /// Making u again saves something.
  [[nodiscard]] bool can_rerun_u(std::span<const config::LayerPolicy> policies) const;

  const MemoryRequest& request_;
  Sizes sizes_;
  std::int64_t lowest_;  // layer that has a backward pass
  std::vector<LayerShape> layers_;
  RankBytes fixed_;  // weights, masters, gradients, optimizer
};

}  // namespace longhaul::plan
