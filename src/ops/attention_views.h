// Views of one document's heads in the fused buffers of attention, for the devices' kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention.h"

namespace longhaul::ops {

/// Heads [first, first + count) of rows [begin, end) of a [T, heads·d] matrix as [1, count, len,
/// d], without a copy.
at::Tensor heads_view(const at::Tensor& matrix, config::Range rows, std::int64_t first,
                      std::int64_t count, std::int64_t head_dim);

/// `runs` cut where one of `groups` groups of consecutive KV heads, as even as possible, ends and the
/// next begins. Requires 1 ≤ groups ≤ number of KV heads.
std::vector<config::HeadRun> cut_runs(std::span<const config::HeadRun> runs, std::int64_t groups);

/// q, k, v views [1, heads, len, d] of one document and run.
struct AttentionOperands {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};
AttentionOperands operands_of(const at::Tensor& qkv, const AttentionShape& shape,
                              const config::HeadRun& run, config::Range rows);

}  // namespace longhaul::ops
