#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/peer_signal.h"

namespace longhaul::kernels::cuda {
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

void signal_peers(const PeerFlags& flags, std::uint32_t value, Stream stream) {
  launch("signal peers", signal_kernel, dim3(1), kMostPeers, stream, flags, value);
}

void wait_for_peers(const PeerFlags& flags, std::uint32_t value, const std::uint32_t* is_aborted,
                    Stream stream) {
  launch("wait for peers", wait_kernel, dim3(1), kMostPeers, stream, flags, value, is_aborted);
}

}  // namespace longhaul::kernels::cuda
