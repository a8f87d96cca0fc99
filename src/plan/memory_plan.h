// What one rank of a run will hold in memory, by kind, and which activation policy fits. From
// shapes and rates only: no weights, no device. The same numbers drive `longhaul plan`, the start-up
// print and the choice under `--activation_policy auto`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "config/config.h"
#include "config/model_config.h"
#include "config/shapes.h"
#include "plan/device.h"

namespace longhaul::plan {

/// Peak bytes of one rank; the sum of the kinds is the planned peak of the device's tensors.
struct RankBytes {
  std::int64_t weights = 0;  // as layers read them, adapters included; sharded ones: a rank's rows
                             // and the two layers that are gathered at a time
  std::int64_t masters = 0;  // fp32 trained weights where they are separate
  std::int64_t gradients = 0;    // fp32
  std::int64_t optimizer = 0;    // two moments, fp32 or bf16
  std::int64_t activations = 0;  // what all layers keep between forward and backward
  std::int64_t working_set = 0;  // largest simultaneous temporaries on top of that
  std::int64_t host = 0;         // offloaded activations, in host memory: not part of the total
  [[nodiscard]] std::int64_t total() const {
    return weights + masters + gradients + optimizer + activations + working_set;
  }
};

/// How layers compute when memory is short; costs little next to re-running.
struct LayerForm {
  std::int64_t attention_groups = 1;  // of whole KV heads (ops::AttentionShape)
  std::int64_t mlp_tile_rows = 0;     // rows of a tile (model::Mlp); 0: all at once
  std::int64_t logits_tile_rows = 0;  // of the LM head; 0: config::logits_tile_rows
  bool reruns_u = false;              // as model::DecoderLayer
  bool operator==(const LayerForm&) const = default;
};

/// What bytes and seconds depend on.
struct MemoryRequest {
  const config::ModelConfig* model = nullptr;
  std::span<const config::ParamSpec> registry;
  base::Dtype dtype = base::Dtype::kFloat32;
  /// Of both moments: --optimizer_state_dtype.
  base::Dtype optimizer_dtype = base::Dtype::kFloat32;
  config::Mesh mesh;
  /// Ranks that the layers' frozen weights are cut over (config::cut_over_ranks); 1: every rank has
  /// them whole.
  std::int64_t shard_ranks = 1;
  std::int64_t row_tokens = 0;   // largest micro-batch of one data-parallel group
  std::int64_t row_targets = 0;  // most target tokens in it
  std::string activation_policy = "auto";
  bool on_gpu = false;
  AttentionKind attention = AttentionKind::kCudnn;  // of GPUs
  std::optional<LayerForm> form{};                  // absent: the first that fits
  std::optional<std::int64_t> limit_bytes{};        // per rank; absent: the policy is not limited
  /// Host memory for offloaded activations, per rank; absent: `auto` offloads nothing.
  std::optional<std::int64_t> host_limit_bytes{};
  double attended_length = 0;  // Σ len² / Σ len of the documents; 0: attention costs no time
  /// Masked copies of the adapters' inputs, or what products that mask by themselves work in.
  double lora_dropout = 0;
  /// Time only. `auto` chooses with those of the H200, so that ranks on different devices agree;
  /// slower devices hide copies at least as well.
  DeviceRates rates{};
};

struct MemoryPlan {
  std::vector<config::LayerPolicy> policies;  // one per layer
  LayerForm form;
  RankBytes bytes;                          // of the rank that holds most
  std::int64_t attention_kernel_bytes = 0;  // of bytes.working_set, beside attention's inputs
  bool fits = true;                         // within limit_bytes and host_limit_bytes
};

/// Bytes of one rank (sp rank 0, which holds the most tokens) under given policies.
RankBytes rank_bytes(const MemoryRequest& request, std::span<const config::LayerPolicy> policies,
                     const LayerForm& form);

/// What --attn_impl and --deterministic lead to.
AttentionKind attention_kind(const config::Config& config);

/// The policies asked for, or with `auto` the mix of presets that fits the limits and is fastest
/// (plan/policy_choice.h). UserError when the text is no policy.
MemoryPlan make_memory_plan(const MemoryRequest& request);

/// "12xA,16xC" of consecutive equal policies.
std::string policy_text(std::span<const config::LayerPolicy> policies);

/// What else saves memory: "attention in 4 head groups, MLP in tiles of 8,192 rows"; empty: nothing.
std::string form_text(const LayerForm& form);

/// The policies and the form: "28xD, attention in 4 head groups, MLP in tiles of 8,192 rows".
std::string choice_text(const MemoryPlan& plan);

}  // namespace longhaul::plan
