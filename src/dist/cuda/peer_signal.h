// Flags by which GPUs tell one another how far they are; in memory that both map.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace longhaul::dist {

constexpr int kMostPeers = 64;

/// One flag in each peer's memory, as this GPU reaches it.
struct PeerFlags {
  std::uint32_t* flag[kMostPeers] = {};
  int count = 0;
};

/// Sets the flags to `value` after everything that the stream was given before is visible to the
/// peers.
cudaError_t signal_peers(const PeerFlags& flags, std::uint32_t value, cudaStream_t stream);

/// The stream goes on when every one of `flags` (in this GPU's memory) has reached `value`, numbers
/// going around at 2³², or when *`is_aborted` (host memory that the GPU maps) is not 0.
cudaError_t wait_for_peers(const PeerFlags& flags, std::uint32_t value,
                           const std::uint32_t* is_aborted, cudaStream_t stream);

}  // namespace longhaul::dist
