#include "kernels/cuda_cases.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

namespace longhaul::kernels::testing {
namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(status));
  }
}

}  // namespace

DeviceBytes::DeviceBytes(const void* host, std::size_t bytes, std::size_t shift)
    : bytes_(bytes), shift_(shift) {
  check(cudaMalloc(&memory_, bytes + shift + 1));
  check(cudaMemcpy(data(), host, bytes, cudaMemcpyHostToDevice));
}

DeviceBytes::~DeviceBytes() { (void)cudaFree(memory_); }

void* DeviceBytes::data() const { return static_cast<std::uint8_t*>(memory_) + shift_; }

void DeviceBytes::read(void* host) const {
  check(cudaDeviceSynchronize());
  check(cudaMemcpy(host, data(), bytes_, cudaMemcpyDeviceToHost));
}

DeviceMatrix::DeviceMatrix(const Matrix& host, base::Dtype dtype, std::size_t shift_elements)
    : host_(host),
      bytes_(host.data(),
             static_cast<std::size_t>(host.rows() * host.pitch()) * base::dtype_bytes(dtype),
             shift_elements * base::dtype_bytes(dtype)) {}

Matrix DeviceMatrix::read() const {
  Matrix result = host_;
  bytes_.read(result.data());
  return result;
}

std::string compare(const Matrix& got, const Matrix& cpu, base::Dtype dtype, double limit,
                    double scale,
                    const std::function<double(std::int64_t row, std::int64_t column)>& expected) {
  const std::string plain = difference(got, dtype, limit, scale, expected);
  if (!plain.empty()) {
    return "plain formula: " + plain;
  }
  const double last_place = dtype == base::Dtype::kBFloat16 ? 0x1.0p-7 : 0.0;
  const std::string other =
      difference(got, base::Dtype::kFloat32, 2 * limit + last_place, scale,
                 [&](std::int64_t row, std::int64_t column) { return cpu.at(row, column); });
  return other.empty() ? "" : "CPU kernel: " + other;
}

}  // namespace longhaul::kernels::testing
