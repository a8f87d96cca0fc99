#include "cli/data_environment.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/path_state.h"

namespace longhaul::cli {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
  return value == nullptr ? std::string() : std::string(value);
}

/// A folder of this user among those of everybody; a folder of that name that another user made
/// could hold anything.
fs::path folder_without_home() {
  fs::path folder = base::temporary_folder() / fmt::format("longhaul-{}", ::getuid());
  struct stat info {};
  const bool exists = ::lstat(folder.c_str(), &info) == 0;
  if (exists && (!S_ISDIR(info.st_mode) || info.st_uid != ::getuid())) {
    throw base::UserError({.where = "--cache_dir",
                           .what = "HOME is not set, and this folder is not this user's",
                           .got = folder.string(),
                           .hint = "Name a folder with --cache_dir"});
  }
  return folder;
}

}  // namespace

fs::path default_cache() {
  // As the XDG base directory specification says: variables that are empty or relative do not count.
  const fs::path xdg = variable("XDG_CACHE_HOME");
  if (xdg.is_absolute()) {
    return xdg / "longhaul";
  }
  const fs::path home = variable("HOME");
  return home.is_absolute() ? home / ".cache" / "longhaul" : folder_without_home();
}

data::DataEnvironment data_environment(const config::Config& config) {
  data::DataEnvironment environment;
  environment.places.here = base::current_folder();
  environment.places.data_folder = variable("LONGHAUL_DATA");
  environment.places.custom_dataset_info = config.data.custom_dataset_info;
  // `infer` reads rows without keeping them.
  if (config.data.cache_dir.empty() && config.command != config::Command::kInfer) {
    environment.cache_dir = default_cache();
  }
  return environment;
}

}  // namespace longhaul::cli
