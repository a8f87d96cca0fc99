#include "ops/cuda/cuda_attention.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "ops/attention_views.h"

namespace longhaul::ops {
namespace {

/// From this length on a document gets a cuDNN call of its own; below it the launches would cost
/// more than FlashAttention-2's lower rate over all short documents together.
constexpr std::int64_t kCudnnTokens = 2048;

enum class Kernel { kCudnn, kFlash, kFloat32 };

/// Consecutive documents that one call computes.
struct Part {
  Kernel kernel = Kernel::kCudnn;
  config::Range rows;
  std::vector<std::int32_t> cu_seqlens;  // from 0, for kFlash
  std::int64_t longest = 0;
};

std::vector<Part> plan_parts(std::span<const std::int32_t> cu_seqlens, at::ScalarType type) {
  std::vector<Part> parts;
  for (std::size_t doc = 0; doc + 1 < cu_seqlens.size(); ++doc) {
    const config::Range rows{cu_seqlens[doc], cu_seqlens[doc + 1]};
    if (rows.size() == 0) {
      continue;
    }
    Kernel kernel = rows.size() >= kCudnnTokens ? Kernel::kCudnn : Kernel::kFlash;
    kernel = type == at::kFloat ? Kernel::kFloat32 : kernel;
    const bool joins =
        kernel == Kernel::kFlash && !parts.empty() && parts.back().kernel == Kernel::kFlash;
    if (!joins) {
      parts.push_back({.kernel = kernel, .rows = {rows.begin, rows.begin}, .cu_seqlens = {0}});
    }
    Part& part = parts.back();
    part.rows.end = rows.end;
    part.cu_seqlens.push_back(static_cast<std::int32_t>(rows.end - part.rows.begin));
    part.longest = std::max(part.longest, rows.size());
  }
  return parts;
}

/// [1, heads, len, d] → [len, heads, d].
at::Tensor token_major(const at::Tensor& heads) { return heads.squeeze(0).transpose(0, 1); }

/// Rows and heads of one call in the lse [T, nq], as [heads, len].
at::Tensor lse_view(const at::Tensor& lse, config::Range rows, config::Range heads) {
  return lse.narrow(0, rows.begin, rows.size()).narrow(1, heads.begin, heads.size()).t();
}

at::Tensor to_device(const std::vector<std::int32_t>& values, at::Device device) {
  return at::tensor(at::ArrayRef<std::int32_t>(values), at::kInt).to(device);
}

/// KV heads repeated for every query head of their group.
at::Tensor repeat_heads(const at::Tensor& kv, std::int64_t query_heads) {
  const std::int64_t ratio = query_heads / kv.size(1);
  return kv.unsqueeze(2)
      .expand({kv.size(0), kv.size(1), ratio, kv.size(2), kv.size(3)})
      .reshape({kv.size(0), query_heads, kv.size(2), kv.size(3)});
}

at::Tensor sum_repeated(const at::Tensor& gradient, std::int64_t kv_heads) {
  const std::int64_t ratio = gradient.size(1) / kv_heads;
  return gradient.unflatten(1, {kv_heads, ratio}).sum(2);
}

/// The float32 kernel wants its lse rows padded to whole tiles; masked tails must not count.
at::Tensor padded_lse(const at::Tensor& lse_HL) {
  constexpr std::int64_t kTile = 32;
  const std::int64_t length = (lse_HL.size(1) + kTile - 1) / kTile * kTile;
  at::Tensor padded = at::full({1, lse_HL.size(0), length}, std::numeric_limits<float>::infinity(),
                               lse_HL.options());
  padded.narrow(2, 0, lse_HL.size(1)).copy_(lse_HL.unsqueeze(0));
  return padded;
}

/// The kernels read heads of whole 16-byte pieces: others get zero columns, which change no score.
at::Tensor padded_heads(const at::Tensor& heads) {
  const std::int64_t missing = (8 - heads.size(3) % 8) % 8;
  return missing == 0 ? heads : at::constant_pad_nd(heads, {0, missing});
}

AttentionOperands padded(const AttentionOperands& in) {
  return {padded_heads(in.q), padded_heads(in.k), padded_heads(in.v)};
}

/// out as [len, heads, d] and lse as [heads, len].
struct PartOutput {
  at::Tensor out;
  at::Tensor lse;
};

PartOutput forward_part(const Part& part, const AttentionOperands& in, double scale) {
  switch (part.kernel) {
    case Kernel::kCudnn: {
      const auto result = at::_scaled_dot_product_cudnn_attention(
          in.q, in.k, in.v, std::nullopt, /*compute_log_sumexp=*/true, /*dropout_p=*/0.0,
          /*is_causal=*/true, /*return_debug_mask=*/false, scale);
      return {token_major(std::get<0>(result)), std::get<1>(result).flatten(2).squeeze(0)};
    }
    case Kernel::kFlash: {
      const at::Tensor cu = to_device(part.cu_seqlens, in.q.device());
      const auto result = at::_flash_attention_forward(
          token_major(in.q), token_major(in.k), token_major(in.v), cu, cu, part.longest,
          part.longest, /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale);
      return {std::get<0>(result), std::get<1>(result)};
    }
    case Kernel::kFloat32:
      break;
  }
  const std::int64_t heads = in.q.size(1);
  const auto result = at::_scaled_dot_product_efficient_attention(
      in.q, repeat_heads(in.k, heads), repeat_heads(in.v, heads), std::nullopt,
      /*compute_log_sumexp=*/true, /*dropout_p=*/0.0, /*is_causal=*/true, scale);
  return {token_major(std::get<0>(result)),
          std::get<1>(result).squeeze(0).narrow(1, 0, in.q.size(2))};
}

/// dq, dk, dv as [len, heads, d].
std::array<at::Tensor, 3> backward_part(const Part& part, const AttentionOperands& in,
                                        const at::Tensor& grad, const at::Tensor& out,
                                        const at::Tensor& lse_HL, double scale) {
  const auto words = in.q.options().dtype(at::kLong);
  const at::Tensor seed = at::zeros({2}, words);  // no dropout: never read
  const at::Tensor none = at::zeros({}, words);
  if (part.kernel == Kernel::kCudnn) {
    const at::Tensor lse = lse_HL.contiguous().unsqueeze(0).unsqueeze(3);
    const std::int64_t length = part.rows.size();
    const auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
        grad, in.q, in.k, in.v, out, lse, none, none, at::Tensor(), at::Tensor(), at::Tensor(),
        length, length, /*dropout_p=*/0.0, /*is_causal=*/true, scale);
    return {token_major(dq), token_major(dk), token_major(dv)};
  }
  if (part.kernel == Kernel::kFlash) {
    const at::Tensor cu = to_device(part.cu_seqlens, in.q.device());
    const auto [dq, dk, dv] = at::_flash_attention_backward(
        token_major(grad), token_major(in.q), token_major(in.k), token_major(in.v),
        token_major(out), lse_HL.contiguous(), cu, cu, part.longest, part.longest,
        /*dropout_p=*/0.0, /*is_causal=*/true, seed, none, scale);
    return {dq, dk, dv};
  }
  const std::int64_t heads = in.q.size(1);
  const auto [dq, dk, dv, unused] = at::_scaled_dot_product_efficient_attention_backward(
      grad, in.q, repeat_heads(in.k, heads), repeat_heads(in.v, heads), at::Tensor(), out,
      padded_lse(lse_HL), none, none, /*dropout_p=*/0.0, {true, true, true, false},
      /*is_causal=*/true, scale);
  return {token_major(dq), token_major(sum_repeated(dk, in.k.size(1))),
          token_major(sum_repeated(dv, in.k.size(1)))};
}

}  // namespace

AttentionOutput cuda_attention_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                       std::span<const std::int32_t> cu_seqlens) {
  const std::int64_t tokens = qkv.size(0);
  const std::vector<Part> parts = plan_parts(cu_seqlens, qkv.scalar_type());
  const bool one_call = shape.runs.size() == 1 && parts.size() == 1;
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  AttentionOutput result;
  result.lse = at::empty({shape.num_query_heads, tokens}, qkv.options().dtype(at::kFloat)).t();
  if (!one_call) {
    result.out = at::empty({tokens, shape.num_query_heads * shape.head_dim}, qkv.options());
  }
  for (const Part& part : parts) {
    for (const config::HeadRun& run : shape.runs) {
      const PartOutput made =
          forward_part(part, padded(operands_of(qkv, shape, run, part.rows)), scale);
      const config::Range heads = run.local_query_heads;
      const at::Tensor out = made.out.narrow(2, 0, shape.head_dim);
      lse_view(result.lse, part.rows, heads).copy_(made.lse);
      if (one_call) {
        result.out = out.contiguous().view({tokens, -1});
        continue;
      }
      token_major(heads_view(result.out, part.rows, heads.begin, heads.size(), shape.head_dim))
          .copy_(out);
    }
  }
  return result;
}

void cuda_attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                             const AttentionOutput& forward, const AttentionShape& shape,
                             std::span<const std::int32_t> cu_seqlens, const at::Tensor& dqkv) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  for (const Part& part : plan_parts(cu_seqlens, qkv.scalar_type())) {
    for (const config::HeadRun& run : shape.runs) {
      const config::Range heads = run.local_query_heads;
      const auto of_heads = [&](const at::Tensor& matrix) {
        return padded_heads(
            heads_view(matrix, part.rows, heads.begin, heads.size(), shape.head_dim));
      };
      const auto made =
          backward_part(part, padded(operands_of(qkv, shape, run, part.rows)), of_heads(dout),
                        of_heads(forward.out), lse_view(forward.lse, part.rows, heads), scale);
      const AttentionOperands target = operands_of(dqkv, shape, run, part.rows);
      token_major(target.q).copy_(made[0].narrow(2, 0, shape.head_dim));
      token_major(target.k).copy_(made[1].narrow(2, 0, shape.head_dim));
      token_major(target.v).copy_(made[2].narrow(2, 0, shape.head_dim));
    }
  }
}

}  // namespace longhaul::ops
