#include "base/path_state.h"

#include <system_error>

#include "base/error.h"

namespace longhaul::base {

namespace fs = std::filesystem;

fs::file_type look_at(const fs::path& path, const std::string& where) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::status_known(status)) {
    throw UserError(
        {.where = where, .what = "cannot be looked at: " + error.message(), .got = path.string()});
  }
  return status.type();
}

bool path_exists(const fs::path& path, const std::string& where) {
  return look_at(path, where) != fs::file_type::not_found;
}

bool is_folder(const fs::path& path, const std::string& where) {
  return look_at(path, where) == fs::file_type::directory;
}

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

fs::path current_folder() {
  std::error_code error;
  fs::path folder = fs::current_path(error);
  if (error) {
    throw SystemError({.where = "current folder", .what = error.message()});
  }
  return folder;
}

fs::path temporary_folder() {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (error) {
    throw SystemError({.where = "folder for temporary files",
                       .what = error.message(),
                       .hint = "TMPDIR names another one"});
  }
  return folder;
}

}  // namespace longhaul::base
