// The program that is running, as a file: what belongs beside it is looked for there.
#pragma once

#include <filesystem>

namespace longhaul::base {

/// The file that this process runs; empty when the system does not tell.
std::filesystem::path program_file();

/// The folder that it lies in; empty when the system does not tell.
std::filesystem::path program_folder();

}  // namespace longhaul::base
