#include <cstdint>
#include <limits>
#include <map>
#include <mutex>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scratch.cuh"

namespace longhaul::kernels::cuda {
namespace {

cudaMemPool_t make_pool(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
  std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
        "cudaMemPoolSetAttribute");
  return pool;
}

/// The pool of the current device. Lives as long as the process: at its end the driver may be gone
/// before static destructors run.
cudaMemPool_t current_pool() {
  static std::mutex mutex;
  static std::map<int, cudaMemPool_t> pools;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  auto found = pools.find(device);
  if (found == pools.end()) {
    found = pools.emplace(device, make_pool(device)).first;
  }
  return found->second;
}

}  // namespace

Scratch::Scratch(std::size_t bytes, Stream stream) : stream_(stream) {
  check(cudaMallocFromPoolAsync(&data_, bytes, current_pool(), stream_of(stream)),
        "cudaMallocFromPoolAsync");
}

Scratch::~Scratch() {
  // A failure here is one of the device that the next checked call reports.
  (void)cudaFreeAsync(data_, stream_of(stream_));
}

}  // namespace longhaul::kernels::cuda
