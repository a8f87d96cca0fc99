// Bytes of one decoder layer on one rank, by slot and by stage of the backward pass. From shapes
// only.
#pragma once

#include <cstdint>

#include "config/shapes.h"
#include "plan/memory_plan.h"

namespace longhaul::plan {

/// Widths and counts of sp rank 0, which holds the most tokens and heads.
struct Sizes {
  std::int64_t element = 4;  // bytes
  std::int64_t local = 0;    // S
  std::int64_t row = 0;      // T
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;
  std::int64_t q_width = 0;  // all query heads
  std::int64_t kv_width = 0;
  std::int64_t my_q_width = 0;  // this rank's heads
  std::int64_t my_kv_width = 0;
  std::int64_t my_heads = 0;
  std::int64_t my_kv_heads = 0;
  std::int64_t half_head = 0;
  std::int64_t vocab = 0;
  std::int64_t targets = 0;  // target rows of the shard
  double attended = 0;       // mean attended length
  bool on_gpu = false;
  bool exchanges = false;  // more than one sp rank
  bool qk_norm = false;
  AttentionKind attention = AttentionKind::kCudnn;
  bool masks = false;   // LoRA with dropout
  bool widens = false;  // trained 16-bit base weights: their products' operands are widened to fp32
};
Sizes sizes_of(const MemoryRequest& request);

/// Bytes of one slot.
std::int64_t slot_bytes(const Sizes& sizes, config::Slot slot);

/// Bytes of the slots for which `policy` says `action`; the input counts only if `holds_input`.
std::int64_t slots_with(const Sizes& sizes, const config::LayerPolicy& policy,
                        config::SlotAction action, bool holds_input);

/// Most that is alive of a layer during its backward pass: its own slots, kept or not, the gradients
/// between its stages and the kernels' temporaries. gate_up exists for one tile unless `policy`
/// keeps it.
std::int64_t backward_bytes(const Sizes& sizes, const config::LayerPolicy& policy,
                            const LayerForm& form);

/// Every slot but gate_up: what a layer holds when it is re-run for the one above (the first of a D2
/// pair).
std::int64_t rerun_bytes(const Sizes& sizes);

/// What attention's backward kernel makes beside its inputs for one of `groups` groups of KV heads:
/// its results and, on a GPU, fp32 dQ and dK, dV for every query head. Deterministic FlashAttention-2 has a dQ for every
/// thread block that a head gets.
std::int64_t attention_kernel_bytes(const Sizes& sizes, std::int64_t groups);

/// What exchanges hold all the time: on GPUs the memory that peers write, and the heads that wait to be sent.
std::int64_t exchange_bytes(const Sizes& sizes);

/// Rows of an MLP tile under `form`: all of the rank's when it says nothing.
std::int64_t rows_of_mlp_tile(const Sizes& sizes, const LayerForm& form);

/// Rows of a logits tile under `form`.
std::int64_t logits_tile_rows(const Sizes& sizes, const LayerForm& form);

/// Temporaries of the LM head and the loss.
std::int64_t head_bytes(const Sizes& sizes, const LayerForm& form);

}  // namespace longhaul::plan
