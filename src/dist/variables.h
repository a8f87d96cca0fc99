// Environment variables of processes about to be started, as lists of NAME=VALUE.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace longhaul::dist {

/// What the user has set himself stays.
void set_if_absent(std::vector<std::string>& variables, const std::string& name,
                   const std::string& value);
void set_always(std::vector<std::string>& variables, const std::string& name,
                const std::string& value);

/// By which a rank finds its launcher, and the width of the terminal there (0: none).
void set_launch_variables(std::vector<std::string>& variables, const std::filesystem::path& folder,
                          std::int64_t terminal_columns);
/// Threads of each of `ranks` ranks on `cores` cores, and how long they spin while they wait.
void set_thread_variables(std::vector<std::string>& variables, std::int64_t cores,
                          std::int64_t ranks);

/// As exec takes them: pointers into `texts`, a null at the end.
std::vector<char*> pointers_to(const std::vector<std::string>& texts);

}  // namespace longhaul::dist
