// Several documents in one call of cuDNN's variable-length attention, built with cudnn-frontend
// (https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Attention.html).
// Legend: T rows of the row, nq / nk query / KV heads of the call, d head size.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "ops/attention_calls.h"
#include "ops/attention_views.h"

namespace longhaul::ops {

/// d(q), d(k), d(v), each [T, heads, d] and compact.
struct PackedGradients {
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
};

/// Causal attention inside each document of the calls, on views [1, heads, T, d] of a 16-bit matrix [T, ·] of heads that
/// lie side by side; heads of whole 16-byte pieces. `out` [T, nq, d] may have any row stride. Returns lse [T, nq] fp32.
/// SystemError when cuDNN has no kernel.
at::Tensor cudnn_packed_forward(const AttentionOperands& in, std::span<const AttentionCall> calls,
                                double scale, const at::Tensor& out);

/// `dout` and `out` are [T, nq, d], `lse` [T, nq] is compact. What it works in is freed between the calls.
PackedGradients cudnn_packed_backward(const AttentionOperands& in,
                                      std::span<const AttentionCall> calls, double scale,
                                      const at::Tensor& dout, const at::Tensor& out,
                                      const at::Tensor& lse);

}  // namespace longhaul::ops
