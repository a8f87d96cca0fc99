// Flags by which GPUs tell one another how far they are; in memory that both map. A stream beside compute writes them and
// waits for them without a kernel, which could not start while products hold all multiprocessors.
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

/// A flag with this value ends every wait.
constexpr std::uint32_t kEndOfWaits = 0x7fffffff;

/// Whether streams of this GPU and driver can do it.
bool can_signal_peers(int device);

/// Sets the flags to `value` after everything that the stream was given before is visible to the
/// peers.
cudaError_t signal_peers(const PeerFlags& flags, std::uint32_t value, cudaStream_t stream);

/// The stream goes on when every one of `flags` (in this GPU's memory) has reached `value`. Without a kernel; a flag that
/// is late is noticed late, since the device looks at waiting streams in turns.
cudaError_t wait_for_peers(const PeerFlags& flags, std::uint32_t value, cudaStream_t stream);

/// The same by a kernel of one block, which notices at once: for the stream of the products themselves.
cudaError_t spin_for_peers(const PeerFlags& flags, std::uint32_t value, cudaStream_t stream);

}  // namespace longhaul::dist
