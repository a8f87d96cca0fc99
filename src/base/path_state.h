// What lies at a path that a user named. The answer "I may not look" is a UserError that says why,
// never an exception of the file system library.
#pragma once

#include <filesystem>
#include <string>

namespace longhaul::base {

/// What is at `path`, links followed; `not_found` when nothing is. UserError naming `where` when the
/// system does not tell (no permission, links in a circle, a name that is too long).
std::filesystem::file_type look_at(const std::filesystem::path& path, const std::string& where);

/// True when something is at `path`; UserError as look_at.
bool path_exists(const std::filesystem::path& path, const std::string& where);

/// True when a folder is at `path`; UserError as look_at.
bool is_folder(const std::filesystem::path& path, const std::string& where);

/// `path` without a slash at its end, so that its last component is its name.
std::filesystem::path without_slash(const std::filesystem::path& path);

/// The folder that relative paths start from; SystemError when it is gone.
std::filesystem::path current_folder();

/// The system's folder for temporary files; SystemError when there is none.
std::filesystem::path temporary_folder();

}  // namespace longhaul::base
