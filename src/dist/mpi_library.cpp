#include "dist/mpi_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <system_error>

#include "base/error.h"
#include "base/program.h"

namespace longhaul::dist {
namespace {

constexpr const char* kLibraryName = "liblonghaul_mpi.so";
constexpr const char* kInstallHint =
    "Install Open MPI (Debian: apt install libopenmpi-dev openmpi-bin) and build again, or use one "
    "rank";

using WorldFactory = Communicator* (*)(const MpiWorldRequest*);
using VersionFunction = const char* (*)();

/// The loaded object; never closed, because MPI registers exit handlers.
void* load_library() {
  const std::optional<std::filesystem::path> path = find_mpi_library();
  if (!path) {
    throw base::SystemError(missing_mpi_library());
  }
  // Open MPI's own plug-ins look for its symbols globally.
  void* handle = dlopen(path->c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    throw base::SystemError({.where = "MPI", .what = dlerror(), .hint = kInstallHint});
  }
  return handle;
}

template <typename Function>
Function symbol(void* handle, const char* name) {
  void* address = dlsym(handle, name);
  if (address == nullptr) {
    throw base::SystemError({.where = kLibraryName,
                             .what = fmt::format("has no function {}", name),
                             .hint = "It belongs to another version; build again"});
  }
  return reinterpret_cast<Function>(address);
}

}  // namespace

std::optional<std::filesystem::path> find_mpi_library() {
  std::error_code ignored;
  const std::filesystem::path folder = base::program_folder();
  const std::array<std::filesystem::path, 4> candidates{folder, folder.parent_path() / "lib",
                                                        folder.parent_path(),
                                                        folder.parent_path().parent_path()};
  for (const std::filesystem::path& candidate : candidates) {
    const std::filesystem::path path = candidate / kLibraryName;
    if (std::filesystem::is_regular_file(path, ignored)) {
      return path;
    }
  }
  return std::nullopt;
}

base::Problem missing_mpi_library() {
  return {.where = "MPI",
          .what = fmt::format("there is no {} beside the program (in {})", kLibraryName,
                              base::program_folder().string()),
          .hint = fmt::format("Put it back if the program was moved without it. A build has it if "
                              "Open MPI was there: {}",
                              kInstallHint)};
}

std::string load_mpi_version() {
  return symbol<VersionFunction>(load_library(), "longhaul_mpi_version")();
}

std::optional<std::string> mpi_version() {
  try {
    return load_mpi_version();
  } catch (const base::SystemError&) {
    return std::nullopt;
  }
}

std::unique_ptr<Communicator> open_mpi_world(const MpiWorldRequest& request) {
  const auto make = symbol<WorldFactory>(load_library(), "longhaul_mpi_world");
  return std::unique_ptr<Communicator>(make(&request));
}

}  // namespace longhaul::dist
