// Causal attention over packed documents for one rank's heads, without any exchange.
// Legend: T tokens of the whole row, nq / nk query / KV heads of this rank, d head size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "config/shapes.h"
#include "ops/attention_calls.h"

namespace longhaul::ops {

/// Attention without most of its work, to see whether a long row fits and what its copies take: the
/// kernels run on the first of `one_in` parts of the rows, all other results are zeros, and what the
/// kernels would take for the other rows is held beside them.
struct AttentionRehearsal {
  std::int64_t one_in = 1;  // 1: no rehearsal
  std::int64_t kernel_bytes_per_row = 0;
};

/// The heads and documents of one call. `runs` are the equal-ratio runs of the rank's heads.
struct AttentionShape {
  std::int64_t num_query_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::vector<config::HeadRun> runs;
  /// Groups of whole KV heads that are computed one after the other, so that a kernel's temporaries
  /// exist for one of them only; at most num_kv_heads. On the CPU and in float32, heads of whole
  /// 64-byte pieces give the same bits whatever the number.
  std::int64_t groups = 1;
  AttentionRehearsal rehearsal{};
  AttentionKernels kernels = AttentionKernels::kFastest;  // of a GPU
};

/// Result of the forward pass: out [T, nq·d], lse [T, nq] fp32 (natural log of the softmax sums).
struct AttentionOutput {
  at::Tensor out;
  at::Tensor lse;
};

/// Softmax(q·kᵀ/√d)·v inside each document, causal. `qkv` is [T, (nq + 2·nk)·d]: q heads, then k
/// heads, then v heads.
AttentionOutput attention_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                  std::span<const std::int32_t> cu_seqlens);

/// d(qkv) in qkv's layout from d(out) [T, nq·d]: in `dqkv` when given, which may be qkv itself, else
/// in a new tensor.
at::Tensor attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                              const AttentionOutput& forward, const AttentionShape& shape,
                              std::span<const std::int32_t> cu_seqlens, at::Tensor dqkv = {});

}  // namespace longhaul::ops
