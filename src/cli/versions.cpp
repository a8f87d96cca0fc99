#include "cli/versions.h"

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include "cli/shared_object.h"
#include "config/version.h"
#include "dist/mpi_library.h"

namespace longhaul::cli {

std::string torch_version() {
  return fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
}

std::optional<std::string> cudnn_version() {
  const SharedObject library("libcudnn.so.9", "cudnn");
  if (auto* version = library.function<std::size_t()>("cudnnGetVersion")) {
    const std::size_t number = version();  // 91900 is 9.19.0
    return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  }
  return std::nullopt;
}

std::optional<std::string> nccl_version() {
  const SharedObject library("libnccl.so.2", "nccl");
  int number = 0;
  auto* version = library.function<int(int*)>("ncclGetVersion");
  if (version == nullptr || version(&number) != 0) {
    return std::nullopt;
  }
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::string version_text() {
  const std::string absent = "not present";
  return fmt::format("longhaul {}\nlibtorch {}\ncuDNN {}\nNCCL {}\nMPI {}\n",
                     config::program_version(), torch_version(), cudnn_version().value_or(absent),
                     nccl_version().value_or(absent), dist::mpi_version().value_or(absent));
}

}  // namespace longhaul::cli
