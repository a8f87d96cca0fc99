// Row length and sequence-parallel degree: which sp the Ulysses options ask for, and what would fit
// if it does not.
#pragma once

#include <vector>

#include "base/error.h"
#include "config/config.h"
#include "config/model_config.h"

namespace longhaul::config {

/// Sets `max_length` and `row_length`; a fault when the lengths contradict each other.
void decide_lengths(Config& config, const ModelConfig& model, std::vector<base::Problem>& problems);

/// Sets `mesh` from the Ulysses options, the ranks and the model's heads; needs decide_lengths
/// first. A degree that does not fit is a fault that names the ulysses_seq_len,
/// sequence_parallel_size and NPROC_PER_NODE that would.
void decide_mesh(Config& config, const ModelConfig& model, std::vector<base::Problem>& problems);

}  // namespace longhaul::config
