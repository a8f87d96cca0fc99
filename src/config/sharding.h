// Which frozen weights are cut over the ranks when a run asks for it; pure data for the planner and
// for the parameters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/shapes.h"

namespace longhaul::config {

/// Parameters with equal names here share an input and lie in one buffer, in registry order: q, k
/// and v; gate and up; likewise their biases and LoRA A.
std::string fused_name(const ParamSpec& spec);

/// For each parameter whether a sharded run cuts it: weights of the layers' linear modules that are
/// frozen, as is all that they are fused with. Embedding, LM head, norms, biases and adapters stay
/// whole on every rank.
std::vector<bool> cut_over_ranks(std::span<const ParamSpec> registry);

/// The option that asks for sharded weights, as the user wrote it ("--fsdp fsdp2"); empty: none.
std::string sharding_option(const Config& config);

/// The run has several ranks and was asked to shard; of a resolved config.
bool shards_weights(const Config& config);

}  // namespace longhaul::config
