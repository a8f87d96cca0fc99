// Tiny models, rows and adapters for the parity tests; sizes odd on purpose.
#pragma once

#include "config/model_config.h"
#include "config/shapes.h"
#include "data/batch.h"
#include "model/parameters.h"

#include <cstdint>
#include <string>
#include <vector>

namespace longhaul::testing {

/// Names: "llama" 4/4 heads, "qwen2" 8/2 with bias, "qwen2_tied" 6/2 tied, "qwen3" 4/2 with q/k norm and its own head
/// size, "smol" 9/3 tied.
config::ModelConfig tiny_model(const std::string& name);

enum class Tuning { kLora, kFull };

/// LoRA r 4 on every linear layer, or everything trained.
config::TuningSpec tiny_tuning(const config::ModelConfig& model, Tuning tuning);

/// Random weights (norms near 1, LoRA B not zero) that depend on the parameter's name and `seed` only.
void randomise(model::Parameters& parameters, std::uint64_t seed);

/// A document of `length` random tokens; every token whose number is ≥ `first_target` is a target.
struct Document {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;  // not shifted
};
Document make_document(std::int64_t length, std::int64_t first_target, std::int64_t vocab,
                       std::uint64_t seed);

/// Flattens documents to one row, labels shifted inside each document; sample numbers count from `first_sample`.
data::PackedBatch make_row(const std::vector<Document>& documents, std::int64_t first_sample);

}  // namespace longhaul::testing
