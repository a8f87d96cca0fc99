// The GPU's entry point: what load_cuda_backend() finds in the shared object.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cudnn_version.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "kernels/cuda_table.h"
#include "ops/backend.h"
#include "ops/cuda/cuda_attention.h"
#include "ops/cuda/cuda_host_slots.h"
#include "ops/cuda/cuda_products.h"
#include "ops/cuda/cuda_side_stream.h"

namespace longhaul::ops {
namespace {

kernels::Stream current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

std::string attention_name(AttentionKernels kernels, at::ScalarType type) {
  const AttentionLimits limits = attention_limits(type);
  if (limits.is_float32) {
    return "libtorch's memory-efficient float32 kernel";
  }
  if (limits.deterministic) {
    return "FlashAttention-2, deterministic";
  }
  if (kernels == AttentionKernels::kFlash) {
    return "FlashAttention-2";
  }
  const std::string cudnn =
      fmt::format("cuDNN {}.{}.{}", CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL);
  if (kernels == AttentionKernels::kCudnnPerDocument ||
      (kernels == AttentionKernels::kCudnn && !limits.has_packed_cudnn)) {
    return cudnn + ", a call per document";
  }
  return cudnn + (limits.has_packed_cudnn ? ", packed documents of similar lengths in one call"
                                          : ", FlashAttention-2 for short documents");
}

c10::CachingDeviceAllocator::DeviceStats device_stats() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
}

constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

MemoryCounters device_memory() {
  const auto stats = device_stats();
  return {.current_bytes = stats.allocated_bytes[kAll].current,
          .peak_bytes = stats.allocated_bytes[kAll].peak,
          .peak_reserved_bytes = stats.reserved_bytes[kAll].peak};
}

DeviceIdentity identity() {
  const cudaDeviceProp& properties = *at::cuda::getCurrentDeviceProperties();
  return {.name = properties.name,
          .bus_address = fmt::format("{:08x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                     properties.pciBusID, properties.pciDeviceID)};
}

std::int64_t usable_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free) + device_stats().reserved_bytes[kAll].current;
}

void reset_device_peak() {
  c10::cuda::CUDACachingAllocator::resetPeakStats(c10::cuda::current_device());
}

bool is_on_device(const void* memory) {
  cudaPointerAttributes attributes{};
  C10_CUDA_CHECK(cudaPointerGetAttributes(&attributes, memory));
  return attributes.type == cudaMemoryTypeDevice;
}

void copy_by_address(void* to, const void* from, std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(bytes);
  const bool on_device = is_on_device(to);
  LONGHAUL_ASSERT(is_on_device(from) == on_device, "both places are the host's or the GPU's");
  if (!on_device) {
    std::memmove(to, from, count);
    return;
  }
  C10_CUDA_CHECK(cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice,
                                 c10::cuda::getCurrentCUDAStream().stream()));
}

void start_device(int device) {
  // Segments that grow keep long rows from splitting the memory; a user's own setting wins.
  ::setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
  // Products of equal operands give equal bits; only deterministic runs demand it.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  const int count = c10::cuda::device_count();
  if (device >= count) {
    throw base::SystemError(
        {.where = "--device cuda",
         .what = fmt::format("this process needs GPU {}, CUDA sees {}", device, count)});
  }
  at::globalContext().lazyInitDevice(at::DeviceType::CUDA);
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
}

}  // namespace
}  // namespace longhaul::ops

extern "C" __attribute__((visibility("default"))) const longhaul::ops::Backend*
longhaul_cuda_backend(int device) {
  using namespace longhaul::ops;
  start_device(device);
  static const Backend backend{.kernels = &longhaul::kernels::cuda_kernels(),
                               .stream = current_stream,
                               .linear_onto = cuda_linear_onto,
                               .attention_forward = cuda_attention_forward,
                               .attention_backward = cuda_attention_backward,
                               .attention_name = attention_name,
                               .identity = identity,
                               .memory = device_memory,
                               .usable_bytes = usable_bytes,
                               .reset_memory_peak = reset_device_peak,
                               .host_copier = cuda_host_copier,
                               .side_stream = cuda_side_stream,
                               .copy_bytes = copy_by_address};
  return &backend;
}
