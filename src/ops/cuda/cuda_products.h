// Matrix products of a GPU that add to a matrix in their epilogue: what would be a pass over it costs one read.
#pragma once

#include <ATen/core/Tensor.h>

namespace longhaul::ops {

/// out [S, N] = add [S, N] + x [S, K] · w [N, K]ᵀ (+ bias [N] when defined) in bf16, summed in fp32 and rounded once, by the kernel
/// that cuBLASLt's heuristics put first; never in parts of K that are summed
/// afterwards: a row's bits have not been seen to depend on how many there are.
///
/// Layout   rows without gaps between elements; addresses and pitches multiples of 16 bytes; `add` is not `out`
/// Returns  false, and nothing is written: another layout or type, or no kernel
/// Errors   c10::Error when the kernel cannot be started
bool cuda_linear_onto(const at::Tensor& x_SK, const at::Tensor& w_NK, const at::Tensor& bias_N,
                      const at::Tensor& add_SN, const at::Tensor& out_SN);

}  // namespace longhaul::ops
