// What the tests of the CUDA kernels share: arguments on the device, and the comparison with the
// CPU kernel and the plain formula at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/kernel_cases.h"

namespace longhaul::kernels::testing {

/// Device memory with the bytes of host memory, `shift` bytes after a 256-byte border.
class DeviceBytes {
 public:
  DeviceBytes(const void* host, std::size_t bytes, std::size_t shift = 0);
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  [[nodiscard]] void* data() const;
  /// Waits for the device, then copies everything back.
  void read(void* host) const;

 private:
  void* memory_ = nullptr;
  std::size_t bytes_;
  std::size_t shift_;
};

/// A vector on the device, `shift` elements after a 256-byte border.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& host, std::size_t shift = 0)
      : size_(host.size()), bytes_(host.data(), host.size() * sizeof(T), shift * sizeof(T)) {}
  [[nodiscard]] T* data() const { return static_cast<T*>(bytes_.data()); }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> host(size_);
    bytes_.read(host.data());
    return host;
  }

 private:
  std::size_t size_;
  DeviceBytes bytes_;
};

/// A matrix with its guarded padding on the device.
class DeviceMatrix {
 public:
  DeviceMatrix(const Matrix& host, base::Dtype dtype, std::size_t shift_elements = 0);
  [[nodiscard]] void* data() const { return bytes_.data(); }
  [[nodiscard]] std::int64_t pitch() const { return host_.pitch(); }
  [[nodiscard]] Matrix read() const;

 private:
  Matrix host_;
  DeviceBytes bytes_;
};

/// Empty when `got` is within the tolerance of `difference` of the plain formula, within one unit
/// in the last place more of the CPU kernel's result, and has intact padding.
std::string compare(const Matrix& got, const Matrix& cpu, base::Dtype dtype, double limit,
                    double scale,
                    const std::function<double(std::int64_t row, std::int64_t column)>& expected);

}  // namespace longhaul::kernels::testing
