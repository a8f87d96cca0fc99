// Sample numbers → PackedBatch: documents one behind the other, labels shifted inside each document
// (the last token of a document predicts nothing, its first token is nobody's target), positions
// from 0 in each document.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "data/schedule.h"
#include "data/token_store.h"

namespace longhaul::data {

/// One micro-batch of one group; no samples give an empty batch (cu_seqlens = {0}).
PackedBatch build_batch(const TokenStore& store, std::span<const std::int64_t> samples);

/// Target tokens of these samples, without reading their ids.
std::int64_t count_targets(const TokenStore& store, std::span<const std::int64_t> samples);

/// Target tokens of the whole step over all groups and micro-batches: the divisor of its loss,
/// known to every rank before its first forward.
std::int64_t count_targets(const TokenStore& store, const StepPlan& plan);

/// Tokens of the whole step over all groups and micro-batches.
std::int64_t count_tokens(const TokenStore& store, const StepPlan& plan);

/// Lengths of the whole step's documents, those of all groups and micro-batches.
std::vector<std::int64_t> document_lengths(const TokenStore& store, const StepPlan& plan);

}  // namespace longhaul::data
