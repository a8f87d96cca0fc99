#include "ops/cuda_library.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include "base/error.h"
#include "base/program.h"
#include "ops/backend.h"

namespace longhaul::ops {

namespace fs = std::filesystem;

namespace {
void* opened_library =
    nullptr;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): the process's own
}  // namespace

fs::path cuda_library_path() { return base::program_folder() / "liblonghaul_cuda.so"; }

void load_cuda_backend(int device, const fs::path& library) {
  const fs::path path = library.empty() ? cuda_library_path() : library;
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw base::SystemError({.where = "--device cuda",
                             .what = std::string("cannot load the GPU part: ") + ::dlerror(),
                             .hint = "longhaul doctor says what is missing; --device cpu computes "
                                     "here"});
  }
  opened_library = handle;
  using Open = const Backend* (*)(int device);
  const auto open = reinterpret_cast<Open>(cuda_symbol("longhaul_cuda_backend"));
  register_backend(at::DeviceType::CUDA, *open(device));
}

void* cuda_symbol(const char* name) {
  LONGHAUL_ASSERT(opened_library != nullptr, "the GPU part is open");
  void* address = ::dlsym(opened_library, name);
  LONGHAUL_ASSERT(address != nullptr, std::string(name) + " is in this program's GPU part");
  return address;
}

at::Device open_device(const config::Config& config) {
  if (config.on_cpu()) {
    return at::kCPU;
  }
  const auto gpu = static_cast<c10::DeviceIndex>(config.launch.local_rank);
  load_cuda_backend(gpu);
  at::Context& libtorch = at::globalContext();
  libtorch.setDeterministicAlgorithms(config.output.deterministic, /*warn_only=*/false);
  libtorch.setDeterministicFillUninitializedMemory(false);  // we never read such memory
  return {at::kCUDA, gpu};
}

}  // namespace longhaul::ops
