// Rows that are measured: random tokens, every one a target, in one document or in many.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/batch.h"

namespace longhaul::train {

/// Lengths of a row's documents: one, or with `mean` log-normal ones (sigma 0.8) from a fixed seed, of
/// which the last is cut to fit.
std::vector<std::int64_t> bench_documents(std::int64_t tokens, std::optional<std::int64_t> mean);

/// Where documents of these lengths begin and end in their row.
std::vector<std::int32_t> document_borders(const std::vector<std::int64_t>& lengths);

/// A row of documents of these lengths; the same one whenever it is asked for. Unlike a row of real
/// data its documents' last tokens are targets, too.
data::PackedBatch bench_row(const std::vector<std::int64_t>& lengths, std::int64_t vocab_size);

}  // namespace longhaul::train
