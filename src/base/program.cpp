#include "base/program.h"

#include <system_error>

namespace longhaul::base {

std::filesystem::path program_file() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

std::filesystem::path program_folder() { return program_file().parent_path(); }

}  // namespace longhaul::base
