#include "dist/cuda/peer_signal.h"

#include <cuda.h>

namespace longhaul::dist {
namespace {

using StreamOperation = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);

/// A function of the driver, which no library of the toolkit brings along; null when it has none.
StreamOperation driver_function(const char* name) {
  constexpr unsigned kVersion = 12000;  // since which every device has these operations
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<StreamOperation>(address);
}

struct StreamOperations {
  StreamOperation write = driver_function("cuStreamWriteValue32");
  StreamOperation wait = driver_function("cuStreamWaitValue32");
};

const StreamOperations& operations() {
  static const StreamOperations found;
  return found;
}

cudaError_t for_all(StreamOperation operation, const PeerFlags& flags, std::uint32_t value,
                    unsigned how, cudaStream_t stream) {
  for (int i = 0; i < flags.count; ++i) {
    if (operation(stream, reinterpret_cast<CUdeviceptr>(flags.flag[i]), value, how) !=
        CUDA_SUCCESS) {
      return cudaErrorUnknown;
    }
  }
  return cudaSuccess;
}

}  // namespace

bool can_signal_peers(int device) {
  int major = 0;
  return operations().write != nullptr && operations().wait != nullptr &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 8;
}

cudaError_t signal_peers(const PeerFlags& flags, std::uint32_t value, cudaStream_t stream) {
  return for_all(operations().write, flags, value, CU_STREAM_WRITE_VALUE_DEFAULT, stream);
}

cudaError_t wait_for_peers(const PeerFlags& flags, std::uint32_t value, cudaStream_t stream) {
  return for_all(operations().wait, flags, value, CU_STREAM_WAIT_VALUE_GEQ, stream);
}

}  // namespace longhaul::dist
