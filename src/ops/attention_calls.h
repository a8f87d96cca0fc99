// Which attention kernel computes which documents of a row on a GPU. No libtorch here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/shapes.h"

namespace longhaul::ops {

/// What the user asks for (--attn_impl), or a benchmark.
enum class AttentionKernels {
  kFastest,           // by the measurements in attention_calls.cpp
  kCudnn,             // cuDNN for every document
  kCudnnPerDocument,  // cuDNN with a call for every document, for comparison
  kFlash,             // FlashAttention-2, one call for all documents
};

/// What the device and the run allow.
struct AttentionLimits {
  bool has_packed_cudnn = true;  // cuDNN's kernels for several documents: Hopper and later
  bool deterministic = false;    // cuDNN's backward pass adds up d(q) in any order
  bool is_float32 = false;       // neither cuDNN nor FlashAttention-2 has it
};

enum class AttentionKernel {
  kCudnn,        // one document
  kCudnnPacked,  // several, anywhere in the row, or one of an uncommon length
  kFlash,        // several, one behind the other
  kFloat32,      // one document
};

/// Documents that one call computes.
struct AttentionCall {
  AttentionKernel kernel = AttentionKernel::kCudnn;
  std::vector<config::Range> documents;  // rows of the row; none is empty
  /// kCudnnPacked: documents and rows per document that the kernel is built for. It works in memory for
  /// capacity · longest rows.
  std::int64_t capacity = 0;
  std::int64_t longest = 0;

  /// From the first document's first row to the last one's last.
  [[nodiscard]] config::Range rows() const {
    return {documents.front().begin, documents.back().end};
  }
};

/// The calls that cover all documents of a row; those without tokens are left out. Packed calls take the memory of at
/// most one document as long as the row, rounded up.
std::vector<AttentionCall> attention_calls(std::span<const std::int32_t> cu_seqlens,
                                           AttentionKernels kernels, const AttentionLimits& limits);

}  // namespace longhaul::ops
