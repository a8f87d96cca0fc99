#include "ops/attention_views.h"

namespace longhaul::ops {

at::Tensor heads_view(const at::Tensor& matrix, config::Range rows, std::int64_t first,
                      std::int64_t count, std::int64_t head_dim) {
  return matrix.narrow(0, rows.begin, rows.size())
      .narrow(1, first * head_dim, count * head_dim)
      .unflatten(1, {count, head_dim})
      .transpose(0, 1)
      .unsqueeze(0);
}

AttentionOperands operands_of(const at::Tensor& qkv, const AttentionShape& shape,
                              const config::HeadRun& run, config::Range rows) {
  const std::int64_t nq = shape.num_query_heads;
  const std::int64_t nk = shape.num_kv_heads;
  const config::Range q = run.local_query_heads;
  const config::Range kv = run.local_kv_heads;
  return {heads_view(qkv, rows, q.begin, q.size(), shape.head_dim),
          heads_view(qkv, rows, nq + kv.begin, kv.size(), shape.head_dim),
          heads_view(qkv, rows, nq + nk + kv.begin, kv.size(), shape.head_dim)};
}

}  // namespace longhaul::ops
