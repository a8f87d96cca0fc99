#include "ops/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/ceil_div.h"
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

/// The rows that a rehearsal computes, and their documents.
struct FirstRows {
  std::int64_t count = 0;
  std::vector<std::int32_t> cu_seqlens;
};

FirstRows first_rows(std::int64_t rows, const AttentionRehearsal& rehearsal,
                     std::span<const std::int32_t> cu_seqlens) {
  FirstRows first{.count = base::ceil_div(rows, rehearsal.one_in), .cu_seqlens = {0}};
  for (const std::int32_t border : cu_seqlens.subspan(1)) {
    if (first.cu_seqlens.back() < first.count) {
      first.cu_seqlens.push_back(std::min(border, static_cast<std::int32_t>(first.count)));
    }
  }
  return first;
}

AttentionOutput rehearse_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                 std::span<const std::int32_t> cu_seqlens) {
  const std::int64_t rows = qkv.size(0);
  const FirstRows first = first_rows(rows, shape.rehearsal, cu_seqlens);
  AttentionOutput result{
      .out = at::zeros({rows, shape.num_query_heads * shape.head_dim}, qkv.options()),
      .lse = at::zeros({shape.num_query_heads, rows}, qkv.options().dtype(at::kFloat)).t()};
  const AttentionOutput made = backend_of(qkv).attention_forward(qkv.narrow(0, 0, first.count),
                                                                 grouped(shape), first.cu_seqlens);
  result.out.narrow(0, 0, first.count).copy_(made.out);
  result.lse.narrow(0, 0, first.count).copy_(made.lse);
  return result;
}

void rehearse_backward(const at::Tensor& dout, const at::Tensor& qkv,
                       const AttentionOutput& forward, const AttentionShape& shape,
                       std::span<const std::int32_t> cu_seqlens, const at::Tensor& dqkv) {
  const std::int64_t rows = qkv.size(0);
  const FirstRows first = first_rows(rows, shape.rehearsal, cu_seqlens);
  const at::Tensor held = at::empty({(rows - first.count) * shape.rehearsal.kernel_bytes_per_row},
                                    qkv.options().dtype(at::kByte));
  const auto part = [&](const at::Tensor& whole) { return whole.narrow(0, 0, first.count); };
  backend_of(qkv).attention_backward(part(dout), part(qkv), {part(forward.out), part(forward.lse)},
                                     grouped(shape), first.cu_seqlens, part(dqkv));
  dqkv.narrow(0, first.count, rows - first.count).zero_();
}

}  // namespace

AttentionOutput attention_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                  std::span<const std::int32_t> cu_seqlens) {
  const OpTimer timer(OpKind::kAttention);
  check_qkv(qkv, shape, cu_seqlens);
  if (shape.rehearsal.one_in > 1) {
    return rehearse_forward(qkv, shape, cu_seqlens);
  }
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
  if (shape.rehearsal.one_in > 1) {
    rehearse_backward(dout, qkv, forward, shape, cu_seqlens, dqkv);
    return dqkv;
  }
  backend_of(qkv).attention_backward(dout, qkv, forward, grouped(shape), cu_seqlens, dqkv);
  return dqkv;
}

}  // namespace longhaul::ops
