// Tiny models, rows and adapters for the parity tests; sizes odd on purpose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "config/shapes.h"
#include "data/batch.h"
#include "model/parameters.h"

namespace longhaul::testing {

/// Names: "llama" 4/4 heads, "qwen2" 8/2 with bias, "qwen2_tied" 6/2 tied, "qwen3" 4/2 with q/k
/// norm and its own head size, "smol" 9/3 tied; "aligned" 4/2 with sizes that every kernel takes, on two ranks as well.
config::ModelConfig tiny_model(const std::string& name);

enum class Tuning { kLora, kFull };

/// LoRA r 4 (8 of "aligned") on every linear layer, or everything trained.
config::TuningSpec tiny_tuning(const config::ModelConfig& model, Tuning tuning);

/// Random weights (norms near 1, LoRA B not zero) that depend on the parameter's name and `seed`
/// only.
void randomise(model::Parameters& parameters, std::uint64_t seed);

/// A document of `length` random tokens; every token whose number is ≥ `first_target` is a target.
struct Document {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;  // not shifted
};
Document make_document(std::int64_t length, std::int64_t first_target, std::int64_t vocab,
                       std::uint64_t seed);

/// Flattens documents to one row, labels shifted inside each document; sample numbers count from
/// `first_sample`.
data::PackedBatch make_row(const std::vector<Document>& documents, std::int64_t first_sample);

/// Micro-batches as documents; each is flattened to one row.
using Rows = std::vector<std::vector<Document>>;

/// Three micro-batches: a packed row with a one-token document, a border on a shard border (24 of
/// 48 tokens, also 12 and 36 for four ranks) and a shard without targets; ragged rows (one that
/// does not divide, one shorter than sp); a row without any target.
Rows composite_step(std::int64_t vocab);

/// One row per micro-batch; samples are numbered through.
std::vector<data::PackedBatch> flatten(const Rows& rows);
/// One row per document, with the same sample numbers.
std::vector<data::PackedBatch> one_document_at_a_time(const Rows& rows);

}  // namespace longhaul::testing
