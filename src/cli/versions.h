// Versions of the program and of the libraries it finds at run time.
#pragma once

#include <optional>
#include <string>

namespace longhaul::cli {

/// `2.11.0`: the libtorch this program was built for and runs with.
std::string torch_version();
/// The one the loader or the Python package beside libtorch provides; nothing when absent.
std::optional<std::string> cudnn_version();
std::optional<std::string> nccl_version();

/// What `longhaul --version` prints.
std::string version_text();

}  // namespace longhaul::cli
