#include "ops/attention.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "ops/attention_views.h"
#include "ops/backend.h"
#include "ops/step_clock.h"

namespace longhaul::ops {
namespace {

void check_qkv(const at::Tensor& qkv, const AttentionShape& shape,
               std::span<const std::int32_t> cu_seqlens) {
  const std::int64_t width = (shape.num_query_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  LONGHAUL_ASSERT(qkv.dim() == 2 && qkv.size(1) == width, "qkv is [T, (nq + 2 nk) d]");
  LONGHAUL_ASSERT(!cu_seqlens.empty() && cu_seqlens.back() == qkv.size(0),
                  "the documents cover the row");
}

/// The kernels run one call per document and run of heads: groups are shorter runs.
AttentionShape grouped(const AttentionShape& shape) {
  AttentionShape result = shape;
  result.runs = cut_runs(shape.runs, shape.groups);
  return result;
}

}  // namespace

AttentionOutput attention_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                  std::span<const std::int32_t> cu_seqlens) {
  const OpTimer timer(OpKind::kAttention);
  check_qkv(qkv, shape, cu_seqlens);
  return backend_of(qkv).attention_forward(qkv, grouped(shape), cu_seqlens);
}

at::Tensor attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                              const AttentionOutput& forward, const AttentionShape& shape,
                              std::span<const std::int32_t> cu_seqlens, at::Tensor dqkv) {
  const OpTimer timer(OpKind::kAttention);
  check_qkv(qkv, shape, cu_seqlens);
  if (!dqkv.defined()) {
    dqkv = at::empty(qkv.sizes(), qkv.options());
  }
  check_qkv(dqkv, shape, cu_seqlens);
  backend_of(qkv).attention_backward(dout, qkv, forward, grouped(shape), cu_seqlens, dqkv);
  return dqkv;
}

}  // namespace longhaul::ops
