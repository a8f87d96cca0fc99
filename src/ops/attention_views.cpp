#include "ops/attention_views.h"

#include <algorithm>

#include "base/error.h"

namespace longhaul::ops {

at::Tensor heads_view(const at::Tensor& matrix, config::Range rows, std::int64_t first,
                      std::int64_t count, std::int64_t head_dim) {
  return matrix.narrow(0, rows.begin, rows.size())
      .narrow(1, first * head_dim, count * head_dim)
      .unflatten(1, {count, head_dim})
      .transpose(0, 1)
      .unsqueeze(0);
}

std::vector<config::HeadRun> cut_runs(std::span<const config::HeadRun> runs, std::int64_t groups) {
  const std::int64_t heads = runs.empty() ? 0 : runs.back().local_kv_heads.end;
  LONGHAUL_ASSERT(groups >= 1 && groups <= std::max<std::int64_t>(1, heads),
                  "a group holds a KV head at least");
  std::vector<config::HeadRun> cut;
  for (const config::HeadRun& run : runs) {
    const config::Range kv = run.local_kv_heads;
    const std::int64_t ratio = run.local_query_heads.size() / kv.size();
    for (std::int64_t group = 0; group < groups; ++group) {
      const config::Range part{std::max(kv.begin, heads * group / groups),
                               std::min(kv.end, heads * (group + 1) / groups)};
      if (part.size() > 0) {
        const std::int64_t first = run.local_query_heads.begin + (part.begin - kv.begin) * ratio;
        cut.push_back({{first, first + part.size() * ratio}, part});
      }
    }
  }
  return cut;
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
