// Attention on NVIDIA GPUs behind ops/attention.h: the calls that ops/attention_calls.h plans.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ops/attention.h"

namespace longhaul::ops {

/// Of this device and of libtorch's switch for deterministic algorithms, for tensors of a type.
AttentionLimits attention_limits(at::ScalarType type);

/// `lse` is [T, nq] as promised but lies head by head in memory, which is what the kernels want.
AttentionOutput cuda_attention_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                       std::span<const std::int32_t> cu_seqlens);

void cuda_attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                             const AttentionOutput& forward, const AttentionShape& shape,
                             std::span<const std::int32_t> cu_seqlens, const at::Tensor& dqkv);

}  // namespace longhaul::ops
