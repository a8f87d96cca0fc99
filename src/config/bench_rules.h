// Rules of `longhaul bench`: which part, which shape, and how its rows lie on the ranks.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/config.h"
#include "config/model_config.h"

namespace longhaul::config {

/// train, ladder, attention, exchange: the word after `bench`.
std::span<const std::string_view> bench_parts();

/// Faults that need no model; nothing for other commands.
void check_bench(const Config& config, std::vector<base::Problem>& problems);

/// Sets `mesh` (Ulysses over all ranks) and the lengths; a fault when the model has fewer heads than
/// ranks or a policy does not fit its layers.
void decide_bench(Config& config, const ModelConfig& model, std::vector<base::Problem>& problems);

/// The policies that are measured, one after the other.
std::vector<std::string> bench_policies(const Config& config);

/// Repetitions for rows of `tokens`: the measured ones and those before them that warm up.
struct BenchSteps {
  std::int64_t warm_up = 2;
  std::int64_t measured = 5;
};
BenchSteps bench_steps(const BenchOptions& options, std::int64_t tokens);

}  // namespace longhaul::config
