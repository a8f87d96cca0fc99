#include "dist/cuda/peer_signal.h"

namespace longhaul::dist {
namespace {

__device__ std::uint32_t load_acquire(const std::uint32_t* flag) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__global__ void spin_kernel(PeerFlags flags, std::uint32_t value) {
  if (static_cast<int>(threadIdx.x) >= flags.count) {
    return;
  }
  constexpr unsigned kNap = 100;  // nanoseconds
  while (static_cast<std::int32_t>(load_acquire(flags.flag[threadIdx.x]) - value) < 0) {
    __nanosleep(kNap);
  }
}

}  // namespace

cudaError_t spin_for_peers(const PeerFlags& flags, std::uint32_t value, cudaStream_t stream) {
  spin_kernel<<<1, kMostPeers, 0, stream>>>(flags, value);
  return cudaGetLastError();
}

}  // namespace longhaul::dist
