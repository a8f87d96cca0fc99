#include "ops/cuda_library.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/program.h"
#include "ops/backend.h"

namespace longhaul::ops {

namespace fs = std::filesystem;

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
  using Open = const Backend* (*)(int device);
  const auto open = reinterpret_cast<Open>(::dlsym(handle, "longhaul_cuda_backend"));
  LONGHAUL_ASSERT(open != nullptr, path.string() + " is not this program's GPU part");
  register_backend(at::DeviceType::CUDA, *open(device));
}

}  // namespace longhaul::ops
