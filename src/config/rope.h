// Reading the rotary embedding of a config.json in both spellings.
#pragma once

#include "config/json_fields.h"
#include "config/model_config.h"

namespace longhaul::config {

/// Fills `rope` from `rope_theta`/`rope_scaling` (transformers 4) or `rope_parameters`
/// (transformers 5); unknown types and parameters that change the angles are faults.
/// `max_position_embeddings` is the llama3 default length.
RopeConfig read_rope(const JsonFields& fields, std::int64_t max_position_embeddings);

}  // namespace longhaul::config
