// Rules between options that need neither the model nor the machine.
#pragma once

#include <vector>

#include "base/error.h"
#include "config/config.h"

namespace longhaul::config {

/// sft, pt and plan.
bool describes_training(Command command);

/// Whether the option (without its dashes) was written on the command line or in an option file.
bool is_given(const Config& config, const std::string& option);

/// Required options that are missing, and options that contradict each other.
void check_option_rules(const Config& config, std::vector<base::Problem>& problems);

/// Rules that need to know whether the ranks compute on the CPU, and the model's number type.
void check_device_rules(const Config& config, base::Dtype model_dtype,
                        std::vector<base::Problem>& problems);

}  // namespace longhaul::config
