#include "cli/shared_object.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <filesystem>

namespace longhaul::cli {
namespace {

namespace fs = std::filesystem;

/// `site-packages/nvidia/WHEEL/lib` next to the libtorch in use (`site-packages/torch/lib`).
fs::path wheel_folder(const std::string& wheel) {
  Dl_info info{};
  const auto* symbol =
      reinterpret_cast<const void*>(&c10::GetExceptionString);  // NOLINT: an address
  if (::dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  std::error_code ignored;
  const fs::path library = fs::canonical(info.dli_fname, ignored);
  return library.parent_path().parent_path().parent_path() / "nvidia" / wheel / "lib";
}

}  // namespace

SharedObject::SharedObject(const std::string& name, const std::string& wheel) {
  void* handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr && !wheel.empty()) {
    handle = ::dlopen((wheel_folder(wheel) / name).c_str(), RTLD_LAZY | RTLD_LOCAL);
  }
  if (handle != nullptr) {
    handle_ = std::shared_ptr<void>(handle, [](void* open) { ::dlclose(open); });
  }
}

void* SharedObject::address(const char* name) const {
  return handle_ == nullptr ? nullptr : ::dlsym(handle_.get(), name);
}

}  // namespace longhaul::cli
