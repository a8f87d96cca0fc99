// Peer memory of GPUs of one host: each process maps the others' buffers (CUDA IPC), kernels write over NVLink, and
// flags in the buffers say what has arrived and what has been taken.
#pragma once

#include <cstdint>
#include <memory>

#include "dist/communicator.h"
#include "dist/cuda/nccl_watch.h"
#include "dist/peer_memory.h"

namespace longhaul::dist {

/// Null on every rank where one cannot: ranks of several hosts, GPUs that do not reach one another, no memory.
/// Collective over `comm`, which outlives the result.
std::unique_ptr<PeerMemory> make_nccl_peer_memory(Communicator& comm,
                                                  std::shared_ptr<NcclWatch> watch,
                                                  std::shared_ptr<NcclWatch::Account> account,
                                                  std::int64_t bytes);

}  // namespace longhaul::dist
