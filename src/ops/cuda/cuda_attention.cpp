#include "ops/cuda/cuda_attention.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
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

#include "base/ceil_div.h"
#include "ops/attention_calls.h"
#include "ops/attention_views.h"
#include "ops/cuda/cudnn_packed.h"

namespace longhaul::ops {
namespace {

std::vector<AttentionCall> calls_of(const at::Tensor& qkv, const AttentionShape& shape,
                                    std::span<const std::int32_t> cu_seqlens) {
  constexpr std::int64_t kHeadPiece = 8;  // elements of 16 bytes
  // Every device that has packed kernels has those; of rows this large none has been seen right.
  constexpr std::int64_t kLargestHead = 128;
  constexpr std::int64_t kElements = std::int64_t{1} << 31;
  AttentionLimits limits = attention_limits(qkv.scalar_type());
  limits.has_packed_cudnn = limits.has_packed_cudnn && shape.head_dim % kHeadPiece == 0 &&
                            shape.head_dim <= kLargestHead && qkv.numel() < kElements;
  return attention_calls(cu_seqlens, shape.kernels, limits);
}

/// [1, heads, len, d] → [len, heads, d].
at::Tensor token_major(const at::Tensor& heads) { return heads.squeeze(0).transpose(0, 1); }

/// Rows and heads of one call in the lse [T, nq], as [heads, len].
at::Tensor lse_view(const at::Tensor& lse, config::Range rows, config::Range heads) {
  return lse.narrow(0, rows.begin, rows.size()).narrow(1, heads.begin, heads.size()).t();
}

/// Where the documents of a call begin and end, from its first row on.
at::Tensor borders_of(const AttentionCall& call, at::Device device) {
  std::vector<std::int32_t> borders = {0};
  for (const config::Range& document : call.documents) {
    borders.push_back(static_cast<std::int32_t>(document.end - call.rows().begin));
  }
  return at::tensor(at::ArrayRef<std::int32_t>(borders), at::kInt)
      .to(device, /*non_blocking=*/true);
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
  const std::int64_t length = base::round_up(lse_HL.size(1), kTile);
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
struct CallOutput {
  at::Tensor out;
  at::Tensor lse;
};

CallOutput forward_call(const AttentionCall& call, const AttentionOperands& in, double scale) {
  if (call.kernel == AttentionKernel::kCudnn) {
    const auto result = at::_scaled_dot_product_cudnn_attention(
        in.q, in.k, in.v, std::nullopt, /*compute_log_sumexp=*/true, /*dropout_p=*/0.0,
        /*is_causal=*/true, /*return_debug_mask=*/false, scale);
    return {token_major(std::get<0>(result)), std::get<1>(result).flatten(2).squeeze(0)};
  }
  if (call.kernel == AttentionKernel::kFlash) {
    const at::Tensor cu = borders_of(call, in.q.device());
    const auto result = at::_flash_attention_forward(
        token_major(in.q), token_major(in.k), token_major(in.v), cu, cu, call.longest, call.longest,
        /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale);
    return {std::get<0>(result), std::get<1>(result)};
  }
  const std::int64_t heads = in.q.size(1);
  const auto result = at::_scaled_dot_product_efficient_attention(
      in.q, repeat_heads(in.k, heads), repeat_heads(in.v, heads), std::nullopt,
      /*compute_log_sumexp=*/true, /*dropout_p=*/0.0, /*is_causal=*/true, scale);
  return {token_major(std::get<0>(result)),
          std::get<1>(result).squeeze(0).narrow(1, 0, in.q.size(2))};
}

/// dq, dk, dv as [len, heads, d].
std::array<at::Tensor, 3> backward_call(const AttentionCall& call, const AttentionOperands& in,
                                        const at::Tensor& grad, const at::Tensor& out,
                                        const at::Tensor& lse_HL, double scale) {
  const auto words = in.q.options().dtype(at::kLong);
  const at::Tensor seed = at::zeros({2}, words);  // no dropout: never read
  const at::Tensor none = at::zeros({}, words);
  if (call.kernel == AttentionKernel::kCudnn) {
    const at::Tensor lse = lse_HL.contiguous().unsqueeze(0).unsqueeze(3);
    const std::int64_t length = call.rows().size();
    const auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
        grad, in.q, in.k, in.v, out, lse, none, none, at::Tensor(), at::Tensor(), at::Tensor(),
        length, length, /*dropout_p=*/0.0, /*is_causal=*/true, scale);
    return {token_major(dq), token_major(dk), token_major(dv)};
  }
  if (call.kernel == AttentionKernel::kFlash) {
    const at::Tensor cu = borders_of(call, in.q.device());
    const auto [dq, dk, dv] = at::_flash_attention_backward(
        token_major(grad), token_major(in.q), token_major(in.k), token_major(in.v),
        token_major(out), lse_HL.contiguous(), cu, cu, call.longest, call.longest,
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

double scale_of(const AttentionShape& shape) {
  return 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
}

void write_gradients(const AttentionOperands& target, const at::Tensor& dq, const at::Tensor& dk,
                     const at::Tensor& dv) {
  const auto write = [](const at::Tensor& heads, const at::Tensor& made) {
    token_major(heads).copy_(made.narrow(2, 0, heads.size(3)));
  };
  write(target.q, dq);
  write(target.k, dk);
  write(target.v, dv);
}

/// Packed calls take the row as a whole: their documents may lie anywhere in it.
bool is_packed(const std::vector<AttentionCall>& calls) {
  return !calls.empty() && calls.front().kernel == AttentionKernel::kCudnnPacked;
}

AttentionOutput packed_forward(const at::Tensor& qkv, const AttentionShape& shape,
                               const std::vector<AttentionCall>& calls) {
  const config::Range rows{0, qkv.size(0)};
  AttentionOutput result{
      .out = at::empty({rows.size(), shape.num_query_heads * shape.head_dim}, qkv.options()),
      .lse = at::empty({shape.num_query_heads, rows.size()}, qkv.options().dtype(at::kFloat)).t()};
  for (const config::HeadRun& run : shape.runs) {
    const config::Range heads = run.local_query_heads;
    const at::Tensor out =
        token_major(heads_view(result.out, rows, heads.begin, heads.size(), shape.head_dim));
    const at::Tensor lse =
        cudnn_packed_forward(operands_of(qkv, shape, run, rows), calls, scale_of(shape), out);
    lse_view(result.lse, rows, heads).copy_(lse.t());
  }
  return result;
}

void packed_backward(const at::Tensor& dout, const at::Tensor& qkv, const AttentionOutput& forward,
                     const AttentionShape& shape, const std::vector<AttentionCall>& calls,
                     const at::Tensor& dqkv) {
  const config::Range rows{0, qkv.size(0)};
  for (const config::HeadRun& run : shape.runs) {
    const config::Range heads = run.local_query_heads;
    const auto of_heads = [&](const at::Tensor& matrix) {
      return token_major(heads_view(matrix, rows, heads.begin, heads.size(), shape.head_dim));
    };
    const PackedGradients made = cudnn_packed_backward(
        operands_of(qkv, shape, run, rows), calls, scale_of(shape), of_heads(dout),
        of_heads(forward.out), lse_view(forward.lse, rows, heads).t().contiguous());
    write_gradients(operands_of(dqkv, shape, run, rows), made.dq, made.dk, made.dv);
  }
}

}  // namespace

AttentionLimits attention_limits(at::ScalarType type) {
  constexpr int kHopper = 9;
  return {.has_packed_cudnn = at::cuda::getCurrentDeviceProperties()->major >= kHopper,
          .deterministic = at::globalContext().deterministicAlgorithms(),
          .is_float32 = type == at::kFloat};
}

AttentionOutput cuda_attention_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                       std::span<const std::int32_t> cu_seqlens) {
  const std::int64_t tokens = qkv.size(0);
  const std::vector<AttentionCall> calls = calls_of(qkv, shape, cu_seqlens);
  if (is_packed(calls)) {
    return packed_forward(qkv, shape, calls);
  }
  const bool one_call = shape.runs.size() == 1 && calls.size() == 1;
  AttentionOutput result;
  result.lse = at::empty({shape.num_query_heads, tokens}, qkv.options().dtype(at::kFloat)).t();
  if (!one_call) {
    result.out = at::empty({tokens, shape.num_query_heads * shape.head_dim}, qkv.options());
  }
  for (const AttentionCall& call : calls) {
    for (const config::HeadRun& run : shape.runs) {
      const CallOutput made =
          forward_call(call, padded(operands_of(qkv, shape, run, call.rows())), scale_of(shape));
      const config::Range heads = run.local_query_heads;
      const at::Tensor out = made.out.narrow(2, 0, shape.head_dim);
      lse_view(result.lse, call.rows(), heads).copy_(made.lse);
      if (one_call) {
        result.out = out.contiguous().view({tokens, -1});
        continue;
      }
      token_major(heads_view(result.out, call.rows(), heads.begin, heads.size(), shape.head_dim))
          .copy_(out);
    }
  }
  return result;
}

void cuda_attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                             const AttentionOutput& forward, const AttentionShape& shape,
                             std::span<const std::int32_t> cu_seqlens, const at::Tensor& dqkv) {
  const std::vector<AttentionCall> calls = calls_of(qkv, shape, cu_seqlens);
  if (is_packed(calls)) {
    packed_backward(dout, qkv, forward, shape, calls, dqkv);
    return;
  }
  for (const AttentionCall& call : calls) {
    for (const config::HeadRun& run : shape.runs) {
      const config::Range heads = run.local_query_heads;
      const auto of_heads = [&](const at::Tensor& matrix) {
        return padded_heads(
            heads_view(matrix, call.rows(), heads.begin, heads.size(), shape.head_dim));
      };
      const auto made = backward_call(call, padded(operands_of(qkv, shape, run, call.rows())),
                                      of_heads(dout), of_heads(forward.out),
                                      lse_view(forward.lse, call.rows(), heads), scale_of(shape));
      write_gradients(operands_of(dqkv, shape, run, call.rows()), made[0], made[1], made[2]);
    }
  }
}

}  // namespace longhaul::ops
