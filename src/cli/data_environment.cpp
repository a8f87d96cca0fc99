#include "cli/data_environment.h"

#include <cstdlib>
#include <filesystem>
#include <string>

namespace longhaul::cli {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

data::DataEnvironment data_environment(const config::Config& config) {
  namespace fs = std::filesystem;
  data::DataEnvironment environment;
  environment.places.here = fs::current_path();
  environment.places.data_folder = variable("LONGHAUL_DATA");
  environment.places.custom_dataset_info = config.data.custom_dataset_info;
  const std::string xdg = variable("XDG_CACHE_HOME");
  environment.cache_dir =
      xdg.empty() ? fs::path(variable("HOME")) / ".cache" / "longhaul" : fs::path(xdg) / "longhaul";
  return environment;
}

}  // namespace longhaul::cli
