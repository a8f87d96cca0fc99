// The hand-offs from data to dist and model.
#pragma once

#include <cstdint>
#include <vector>

namespace longhaul::data {

/// One micro-batch of one data-parallel group, flattened to one row of T tokens (never a padded
/// square). Invariant: labels are already shifted inside each document (labels[i] is the target
/// predicted AT position i, the last token of a document has none); positions restart per document;
/// cu_seqlens[0] = 0, back() = T, strictly rising.
struct PackedBatch {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> cu_seqlens;
  /// Sample number of each document (its index in the token store): addresses dropout and NEFTune
  /// noise.
  std::vector<std::int64_t> sample_ids;

  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(ids.size()); }
  [[nodiscard]] std::int64_t num_documents() const {
    return static_cast<std::int64_t>(sample_ids.size());
  }
  [[nodiscard]] std::int64_t num_targets() const;
};

}  // namespace longhaul::data
