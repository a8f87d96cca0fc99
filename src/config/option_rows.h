// The parts of the option table, one file each.
#pragma once

#include <vector>

#include "config/option.h"

namespace longhaul::config {

std::vector<OptionSpec> model_rows();
std::vector<OptionSpec> tuning_rows();
std::vector<OptionSpec> data_rows();
std::vector<OptionSpec> training_rows();
std::vector<OptionSpec> parallel_rows();  // Ulysses, sharding, GaLore, memory
std::vector<OptionSpec> output_rows();
std::vector<OptionSpec> command_rows();  // infer, export, data, plan, bench, web-ui
std::vector<OptionSpec> no_effect_rows();

}  // namespace longhaul::config
