#include "dist/shard.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace longhaul::dist {
namespace {

std::vector<std::int32_t> cut(const std::vector<std::int32_t>& row, config::Range range) {
  return {row.begin() + range.begin, row.begin() + range.end};
}

/// Document of every token in `range`.
std::vector<std::int32_t> documents_of(std::span<const std::int32_t> cu_seqlens,
                                       config::Range range) {
  std::vector<std::int32_t> documents;
  documents.reserve(static_cast<std::size_t>(range.size()));
  const auto after = std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), range.begin);
  auto document = static_cast<std::size_t>(after - cu_seqlens.begin()) - 1;
  for (std::int64_t token = range.begin; token < range.end; ++token) {
    while (cu_seqlens[document + 1] <= token) {
      ++document;
    }
    documents.push_back(static_cast<std::int32_t>(document));
  }
  return documents;
}

}  // namespace

LocalBatch shard_row(const data::PackedBatch& row, std::int64_t sp, std::int64_t sp_rank) {
  const auto tokens = static_cast<std::int64_t>(row.ids.size());
  LONGHAUL_ASSERT(row.labels.size() == row.ids.size() && row.positions.size() == row.ids.size() &&
                      !row.cu_seqlens.empty() && row.cu_seqlens.front() == 0 &&
                      row.cu_seqlens.back() == tokens,
                  "a row's labels, positions and document borders cover its tokens");
  LONGHAUL_ASSERT(sp_rank >= 0 && sp_rank < sp, "a rank of the sequence-parallel group");
  LocalBatch local;
  local.tokens = config::split_tokens(tokens, sp);
  local.my_tokens = local.tokens[static_cast<std::size_t>(sp_rank)];
  local.ids = cut(row.ids, local.my_tokens);
  local.labels = cut(row.labels, local.my_tokens);
  local.positions = cut(row.positions, local.my_tokens);
  local.documents = documents_of(row.cu_seqlens, local.my_tokens);
  local.cu_seqlens = row.cu_seqlens;
  local.sample_ids = row.sample_ids;
  return local;
}

}  // namespace longhaul::dist
