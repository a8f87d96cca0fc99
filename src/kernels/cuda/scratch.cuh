// Device memory for the length of one call.
#pragma once

#include <cstddef>

#include "kernels/kernel_table.h"

namespace longhaul::kernels::cuda {

/// Memory that is taken and given back in the order of the stream (cudaMallocFromPoolAsync,
/// cudaFreeAsync), so neither waits. It comes from a pool of our own that keeps what it got: after
/// the first step a call costs no allocation by the driver. Lies on a 256-byte border.
class Scratch {
 public:
  /// Throws SystemError when the device has no room.
  Scratch(std::size_t bytes, Stream stream);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  Stream stream_;
};

}  // namespace longhaul::kernels::cuda
