// Runs libtorch's fused CPU attention per document and per run of equal query/KV ratio; it reads
// strided heads and takes grouped queries, so nothing is expanded or transposed.
#include "ops/cpu_attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>

#include "ops/attention_views.h"

namespace longhaul::ops {

AttentionOutput cpu_attention_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                      std::span<const std::int32_t> cu_seqlens) {
  const std::int64_t tokens = qkv.size(0);
  const bool one_call = shape.runs.size() == 1 && cu_seqlens.size() == 2;
  AttentionOutput result;
  if (!one_call) {
    result.out = at::empty({tokens, shape.num_query_heads * shape.head_dim}, qkv.options());
    result.lse = at::empty({tokens, shape.num_query_heads}, qkv.options().dtype(at::kFloat));
  }
  for (std::size_t doc = 0; doc + 1 < cu_seqlens.size(); ++doc) {
    const config::Range rows{cu_seqlens[doc], cu_seqlens[doc + 1]};
    for (const config::HeadRun& run : shape.runs) {
      const AttentionOperands in = operands_of(qkv, shape, run, rows);
      auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
          in.q, in.k, in.v, /*dropout_p=*/0.0, /*is_causal=*/true);
      const at::Tensor out_rows = out.squeeze(0).transpose(0, 1);  // [len, heads, d]
      const at::Tensor lse_rows = lse.squeeze(0).transpose(0, 1);  // [len, heads]
      if (one_call) {
        // The kernel's own buffers are already [T, heads, d] and [T, heads].
        result.out = out_rows.contiguous().view({tokens, -1});
        result.lse = lse_rows.contiguous();
        continue;
      }
      const config::Range q = run.local_query_heads;
      result.out.narrow(0, rows.begin, rows.size())
          .narrow(1, q.begin * shape.head_dim, q.size() * shape.head_dim)
          .unflatten(1, {q.size(), shape.head_dim})
          .copy_(out_rows);
      result.lse.narrow(0, rows.begin, rows.size()).narrow(1, q.begin, q.size()).copy_(lse_rows);
    }
  }
  return result;
}

void cpu_attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                            const AttentionOutput& forward, const AttentionShape& shape,
                            std::span<const std::int32_t> cu_seqlens, const at::Tensor& dqkv) {
  for (std::size_t doc = 0; doc + 1 < cu_seqlens.size(); ++doc) {
    const config::Range rows{cu_seqlens[doc], cu_seqlens[doc + 1]};
    for (const config::HeadRun& run : shape.runs) {
      const AttentionOperands in = operands_of(qkv, shape, run, rows);
      const config::Range heads = run.local_query_heads;
      const at::Tensor out =
          heads_view(forward.out, rows, heads.begin, heads.size(), shape.head_dim);
      const at::Tensor grad = heads_view(dout, rows, heads.begin, heads.size(), shape.head_dim);
      const at::Tensor lse = forward.lse.narrow(0, rows.begin, rows.size())
                                 .narrow(1, heads.begin, heads.size())
                                 .transpose(0, 1)
                                 .unsqueeze(0);
      const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          grad, in.q, in.k, in.v, out, lse, /*dropout_p=*/0.0, /*is_causal=*/true);
      const AttentionOperands target = operands_of(dqkv, shape, run, rows);
      target.q.copy_(dq);
      target.k.copy_(dk);
      target.v.copy_(dv);
    }
  }
}

}  // namespace longhaul::ops
