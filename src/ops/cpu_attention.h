// The CPU's attention kernels behind ops/attention.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ops/attention.h"

namespace longhaul::ops {

/// attention_forward on the CPU; arguments are checked by the caller.
AttentionOutput cpu_attention_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                      std::span<const std::int32_t> cu_seqlens);

/// attention_backward on the CPU; arguments are checked by the caller.
void cpu_attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                            const AttentionOutput& forward, const AttentionShape& shape,
                            std::span<const std::int32_t> cu_seqlens, const at::Tensor& dqkv);

}  // namespace longhaul::ops
