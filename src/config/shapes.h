// Pure data about how a model is cut: query and KV heads per rank, tokens per rank, the mesh, the
// parameter registry and what a layer's backward may keep. No torch; used by plan, dist, model and
// train alike.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace longhaul::config {

/// A half-open range of indices.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// One KV head of a rank with the query heads (model numbering) it serves there.
struct HeadGroup {
  std::int64_t kv_head = 0;
  Range query_heads{};
  bool operator==(const HeadGroup&) const = default;
};

/// The heads of one sequence-parallel rank. Query heads are consecutive; groups are in KV-head
/// order.
struct RankHeads {
  Range query_heads{};
  std::vector<HeadGroup> groups{};
  [[nodiscard]] std::int64_t num_query_heads() const { return query_heads.size(); }
  [[nodiscard]] std::int64_t num_kv_heads() const {
    return static_cast<std::int64_t>(groups.size());
  }
  /// The rank's KV heads as a range (they are consecutive).
  [[nodiscard]] Range kv_heads() const;
};

/// Heads of every rank: query heads as even as possible, whole KV groups wherever the counts
/// divide. A KV head needed by several ranks appears on each of them (its dK, dV are then summed).
/// Requires 1 ≤ ranks ≤ num_heads.
std::vector<RankHeads> split_heads(std::int64_t num_heads, std::int64_t num_kv_heads,
                                   std::int64_t ranks);

/// A maximal run of groups with an equal number of query heads: one attention call. Indices are
/// local to the rank.
struct HeadRun {
  Range local_query_heads{};
  Range local_kv_heads{};
};
std::vector<HeadRun> equal_ratio_runs(const RankHeads& heads);

/// Tokens of each of `ranks` shards of a row of `tokens`: consecutive, sizes differing by at most
/// one, larger first; shards may be empty. No padding is ever added.
std::vector<Range> split_tokens(std::int64_t tokens, std::int64_t ranks);

/// Rank numbering: the sp ranks of one data-parallel group are consecutive.
struct Mesh {
  std::int64_t dp = 1;
  std::int64_t sp = 1;
  [[nodiscard]] std::int64_t ranks() const { return dp * sp; }
  [[nodiscard]] std::int64_t sp_rank(std::int64_t rank) const { return rank % sp; }
  [[nodiscard]] std::int64_t dp_rank(std::int64_t rank) const { return rank / sp; }
};

enum class ParamKind { kEmbedding, kLinearWeight, kBias, kNorm, kHead, kLoraA, kLoraB };

/// Which ranks hold different gradients of a parameter that must be summed before the update.
enum class ReduceGroup { kAllRanks };

/// One tensor of the model or the adapter. `name` is the name in the checkpoint it belongs to:
/// Hugging Face's for base weights, PEFT's (without the `base_model.model.` prefix and with
/// `.lora_A.weight`) for adapters.
struct ParamSpec {
  std::string name{};
  std::vector<std::int64_t> shape{};
  ParamKind kind = ParamKind::kLinearWeight;
  std::int64_t layer = -1;  // −1: not part of a decoder layer
  bool trainable = false;
  bool decay = false;       // weight decay applies
  bool in_adapter = false;  // saved with the adapter: LoRA A, B and the copies of modules_to_save
  std::optional<std::string> tied_to{};  // shares storage with that parameter; never counted twice
  int shard_axis = 0;                    // axis along which a sharded store cuts it
  ReduceGroup reduce_group = ReduceGroup::kAllRanks;

  [[nodiscard]] std::int64_t num_elements() const;
};

/// LoRA as configured; `target_modules` holds full module paths
/// (`model.layers.0.self_attn.q_proj`).
struct LoraSpec {
  std::int64_t rank = 8;
  double alpha = 32;
  double dropout = 0.05;
  bool rslora = false;
  std::vector<std::string> target_modules{};
  std::vector<std::string> modules_to_save{};
  [[nodiscard]] double scale() const;  // alpha / rank, or alpha / sqrt(rank) with rslora
};

/// Which base parameters train (full fine-tuning and frozen/trainable patterns).
struct TuningSpec {
  bool full = false;  // full fine-tuning; otherwise LoRA
  std::optional<LoraSpec> lora{};
  /// `--freeze_parameters` prefixes, `--freeze_parameters_regex`, `--freeze_parameters_ratio`, and
  /// the trainable ones.
  std::vector<std::string> freeze_prefixes{};
  std::string freeze_regex{};
  double freeze_ratio = 0;
  std::vector<std::string> trainable_prefixes{};
  std::string trainable_regex{};
};

/// The seven linear layers of a decoder layer in checkpoint order, relative to `model.layers.N.`.
std::span<const std::string_view> layer_linear_modules();

/// Every parameter of the base model in checkpoint order, then the adapter's. Pure; drives loading,
/// checkpoints, sharding, norms and plan. UserError when a pattern matches nothing.
std::vector<ParamSpec> build_registry(const ModelConfig& model, const TuningSpec& tuning);

/// Module paths that `targets` (all-linear, names or one regular expression as in PEFT) select;
/// UserError naming a target that matches nothing, and embeddings or lm_head named as LoRA targets.
std::vector<std::string> resolve_target_modules(const ModelConfig& model,
                                                std::span<const std::string> targets,
                                                std::span<const std::string> modules_to_save = {});

/// What one layer's backward may keep. kInput…kUp are kept or re-run per policy; small ones are
/// always kept.
enum class Slot { kInput, kQkv, kAttnOut, kLse, kResidual, kGateUp, kCount };

enum class SlotAction { kKeep, kHost, kRerun };

/// Activation presets: A keep all but element-wise results · B x, qkv, O, LSE, residual · C x, O,
/// LSE · D x · D2 x of every second layer (first layer of the pair keeps x, the second is rebuilt
/// from it).
enum class ActivationPreset { kA, kB, kC, kD, kD2 };

/// The plan of one layer: an action per slot.
struct LayerPolicy {
  ActivationPreset preset = ActivationPreset::kA;
  bool offload = false;
  [[nodiscard]] SlotAction action(Slot slot) const;
  bool operator==(const LayerPolicy&) const = default;
};

/// Lowest layer that has a backward pass: 0 when the embedding trains, `num_layers` when no layer
/// holds a trained parameter. Layers below it keep nothing.
std::int64_t lowest_backward_layer(std::span<const ParamSpec> registry, std::int64_t num_layers);

/// For each layer whether it is the second of a D2 pair, whose input is rebuilt from the layer
/// below instead of kept. Pairs are counted from the first layer of each run of D2, and from
/// `lowest_backward_layer`.
std::vector<bool> rebuilt_inputs(std::span<const LayerPolicy> policies,
                                 std::int64_t lowest_backward_layer);

/// Rows of one logits tile of the LM head: what 64 MiB hold on the CPU and 320 MiB on a GPU, whose
/// products want more rows; from 16 to 4096.
std::int64_t logits_tile_rows(std::int64_t vocab_size, std::int64_t element_bytes,
                              bool on_gpu = false);

}  // namespace longhaul::config
