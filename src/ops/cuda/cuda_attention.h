// Attention on NVIDIA GPUs behind ops/attention.h: cuDNN for long documents, FlashAttention-2 over
// all short ones of a row at once, a float32 kernel for float32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ops/attention.h"

namespace longhaul::ops {

/// `lse` is [T, nq] as promised but lies head by head in memory, which is what the kernels want.
AttentionOutput cuda_attention_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                       std::span<const std::int32_t> cu_seqlens);

void cuda_attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                             const AttentionOutput& forward, const AttentionShape& shape,
                             std::span<const std::int32_t> cu_seqlens, const at::Tensor& dqkv);

}  // namespace longhaul::ops
