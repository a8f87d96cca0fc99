#include "dist/cuda/peer_signal.h"

namespace longhaul::dist {
namespace {

__device__ void store_release(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ std::uint32_t load_acquire(const std::uint32_t* flag) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__global__ void signal_kernel(PeerFlags flags, std::uint32_t value) {
  if (static_cast<int>(threadIdx.x) < flags.count) {
    __threadfence_system();  // what earlier kernels of the stream wrote goes first
    store_release(flags.flag[threadIdx.x], value);
  }
}

__global__ void wait_kernel(PeerFlags flags, std::uint32_t value, const std::uint32_t* is_aborted) {
  if (static_cast<int>(threadIdx.x) >= flags.count) {
    return;
  }
  constexpr unsigned kNap = 100;  // nanoseconds
  const auto reached = [&] {
    return static_cast<std::int32_t>(load_acquire(flags.flag[threadIdx.x]) - value) >= 0;
  };
  while (!reached() && *static_cast<const volatile std::uint32_t*>(is_aborted) == 0) {
    __nanosleep(kNap);
  }
}

}  // namespace

cudaError_t signal_peers(const PeerFlags& flags, std::uint32_t value, cudaStream_t stream) {
  signal_kernel<<<1, kMostPeers, 0, stream>>>(flags, value);
  return cudaGetLastError();
}

cudaError_t wait_for_peers(const PeerFlags& flags, std::uint32_t value,
                           const std::uint32_t* is_aborted, cudaStream_t stream) {
  wait_kernel<<<1, kMostPeers, 0, stream>>>(flags, value, is_aborted);
  return cudaGetLastError();
}

}  // namespace longhaul::dist
