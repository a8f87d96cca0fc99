// One rank's part of a row: PackedBatch → LocalBatch. Tokens are cut into consecutive ranges; what
// describes the whole row (document borders) travels with every part, so attention never has to
// infer it.
#pragma once

#include <cstdint>
#include <vector>

#include "config/shapes.h"
#include "data/batch.h"

namespace longhaul::dist {

/// The S tokens of one sequence-parallel rank plus the whole row's borders. Invariant: ids, labels,
/// positions and documents have S entries; cu_seqlens and sample_ids are the row's and equal on all
/// ranks of the group.
struct LocalBatch {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t>
      labels;  // shifted before the cut, so the last token of a shard has its target
  std::vector<std::int32_t> positions;  // in the document, not in the shard
  std::vector<std::int32_t> documents;  // document index of each local token
  std::vector<std::int32_t> cu_seqlens;
  std::vector<std::int64_t> sample_ids;
  std::vector<config::Range> tokens;  // of every rank of the group
  config::Range my_tokens;

  [[nodiscard]] std::int64_t row_tokens() const { return cu_seqlens.back(); }
};

/// The part of rank `sp_rank` of `sp` (sizes differ by at most one, shards of short rows are
/// empty).
LocalBatch shard_row(const data::PackedBatch& row, std::int64_t sp, std::int64_t sp_rank);

}  // namespace longhaul::dist
