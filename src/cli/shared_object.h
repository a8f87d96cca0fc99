// A library that may or may not be on this machine, opened by name.
#pragma once

#include <memory>
#include <string>

namespace longhaul::cli {

/// An open library, or nothing. Searched by the loader and in the wheel folders beside libtorch.
class SharedObject {
 public:
  /// `wheel` is the folder under `nvidia/` that Python packages use (`nccl`, `cudnn`); may be
  /// empty.
  SharedObject(const std::string& name, const std::string& wheel);

  [[nodiscard]] bool is_open() const { return handle_ != nullptr; }
  /// Address of a function, null when the library is absent or too old to have it.
  template <typename Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(address(name));  // NOLINT: what dlsym is for
  }

 private:
  [[nodiscard]] void* address(const char* name) const;
  std::shared_ptr<void> handle_;
};

}  // namespace longhaul::cli
