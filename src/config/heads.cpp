// Cuts heads and tokens over sequence-parallel ranks. Pure integer arithmetic: every rank computes
// the same answer for all ranks, so no sizes are ever exchanged. Query head q always uses KV head q
// / (Hq / K) in the model's numbering, whatever the cut.
#include <algorithm>

#include "base/error.h"
#include "config/shapes.h"

namespace longhaul::config {
namespace {

/// `count` items in `parts` consecutive ranges whose sizes differ by at most one, larger ones
/// first.
std::vector<Range> even_ranges(std::int64_t count, std::int64_t parts, std::int64_t first) {
  std::vector<Range> ranges;
  ranges.reserve(static_cast<std::size_t>(parts));
  std::int64_t begin = first;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t size = count / parts + (part < count % parts ? 1 : 0);
    ranges.push_back({begin, begin + size});
    begin += size;
  }
  return ranges;
}

/// Query heads of every rank. With more ranks than KV heads and ranks a multiple of them, each KV
/// group is cut by itself, so that no rank needs two KV heads.
std::vector<Range> query_ranges(std::int64_t num_heads, std::int64_t num_kv_heads,
                                std::int64_t ranks) {
  if (ranks % num_kv_heads != 0) {
    return even_ranges(num_heads, ranks, 0);
  }
  const std::int64_t group = num_heads / num_kv_heads;
  std::vector<Range> ranges;
  for (std::int64_t kv_head = 0; kv_head < num_kv_heads; ++kv_head) {
    const std::vector<Range> part = even_ranges(group, ranks / num_kv_heads, kv_head * group);
    ranges.insert(ranges.end(), part.begin(), part.end());
  }
  return ranges;
}

}  // namespace

Range RankHeads::kv_heads() const {
  if (groups.empty()) {
    return {};
  }
  return {groups.front().kv_head, groups.back().kv_head + 1};
}

std::vector<RankHeads> split_heads(std::int64_t num_heads, std::int64_t num_kv_heads,
                                   std::int64_t ranks) {
  LONGHAUL_ASSERT(num_kv_heads >= 1 && num_heads >= 1 && num_heads % num_kv_heads == 0,
                  "query heads are a multiple of KV heads");
  LONGHAUL_ASSERT(ranks >= 1 && ranks <= num_heads, "between 1 and as many ranks as query heads");
  const std::int64_t group = num_heads / num_kv_heads;
  std::vector<RankHeads> result;
  for (const Range& query : query_ranges(num_heads, num_kv_heads, ranks)) {
    RankHeads heads{.query_heads = query, .groups = {}};
    for (std::int64_t kv_head = query.begin / group; kv_head * group < query.end; ++kv_head) {
      heads.groups.push_back(
          {kv_head,
           {std::max(query.begin, kv_head * group), std::min(query.end, (kv_head + 1) * group)}});
    }
    result.push_back(std::move(heads));
  }
  return result;
}

std::vector<HeadRun> equal_ratio_runs(const RankHeads& heads) {
  std::vector<HeadRun> runs;
  std::int64_t query = 0;
  std::int64_t ratio = 0;
  for (std::int64_t kv_head = 0; kv_head < heads.num_kv_heads(); ++kv_head) {
    const std::int64_t size = heads.groups[static_cast<std::size_t>(kv_head)].query_heads.size();
    if (runs.empty() || size != ratio) {
      runs.push_back({{query, query}, {kv_head, kv_head}});
      ratio = size;
    }
    query += size;
    runs.back().local_query_heads.end = query;
    runs.back().local_kv_heads.end = kv_head + 1;
  }
  return runs;
}

std::vector<Range> split_tokens(std::int64_t tokens, std::int64_t ranks) {
  LONGHAUL_ASSERT(tokens >= 0 && ranks >= 1, "a row and at least one rank");
  return even_ranges(tokens, ranks, 0);
}

}  // namespace longhaul::config
