#include "ops/backend.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "base/error.h"
#include "ops/cpu_attention.h"
#include "ops/host_slots.h"
#include "ops/side_stream.h"

namespace longhaul::ops {
namespace {

void copy_host_bytes(void* to, const void* from, std::int64_t bytes) {
  std::memmove(to, from, static_cast<std::size_t>(bytes));
}

const Backend& cpu_backend() {
  static const Backend backend{
      .kernels = &kernels::cpu_kernels(),
      .stream = [] { return kernels::Stream{nullptr}; },
      .attention_forward = cpu_attention_forward,
      .attention_backward = cpu_attention_backward,
      .attention_name = [](AttentionKernels /*kernels*/, at::ScalarType /*type*/) -> std::string {
        return "libtorch's fused CPU kernel";
      },
      .identity = [] { return DeviceIdentity{.name = "CPU", .bus_address = {}}; },
      .memory = host_memory,
      .usable_bytes = [] { return std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); },
      .reset_memory_peak = reset_host_memory_peak,
      .host_copier = cpu_host_copier,
      .side_stream = cpu_side_stream,
      .copy_bytes = copy_host_bytes};
  return backend;
}

std::optional<Backend>& cuda_backend() {
  static std::optional<Backend> backend;
  return backend;
}

}  // namespace

const Backend& backend_of(at::Device device) {
  if (device.is_cpu()) {
    return cpu_backend();
  }
  LONGHAUL_ASSERT(device.is_cuda() && cuda_backend().has_value(),
                  fmt::format("no kernels are loaded for {}", device.str()));
  return *cuda_backend();
}

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0 || to == from) {
    return;
  }
  // Only the GPU's driver can tell whose memory it is; without one it is the host's.
  const Backend& backend = cuda_backend() ? *cuda_backend() : cpu_backend();
  backend.copy_bytes(to, from, bytes);
}

void register_backend(at::DeviceType type, const Backend& backend) {
  LONGHAUL_ASSERT(type == at::DeviceType::CUDA, "GPUs register themselves");
  cuda_backend() = backend;
}

}  // namespace longhaul::ops
