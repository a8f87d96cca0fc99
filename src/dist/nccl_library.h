// NCCL lies in the shared object with everything CUDA; GPU ranks get their communicator from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dist/communicator.h"
#include "dist/operation_observer.h"

namespace longhaul::dist {

/// Hands rank 0's bytes to every rank: returns what rank 0 passed. Collective.
using ShareBytes = std::function<std::string(const std::string& of_rank_zero)>;

/// What the loaded object needs to know; plain data across the border.
struct NcclWorldRequest {
  int rank = 0;
  int ranks = 1;
  const char* unique_id = nullptr;  // as nccl_unique_id() gave it to rank 0
  std::int64_t start_deadline_ms = 0;
  OperationObserver* observer = nullptr;  // may be null; outlives the communicator
};

/// All ranks of the job on their GPUs, each on the stream that libtorch uses. The CUDA backend is
/// loaded.
///
/// Order   collective, on the thread that will call the communicator
/// Errors  SystemError when NCCL cannot connect the ranks
std::unique_ptr<Communicator> open_nccl_world(std::int64_t rank, std::int64_t ranks,
                                              const ShareBytes& share,
                                              std::chrono::milliseconds deadline,
                                              OperationObserver* observer);

}  // namespace longhaul::dist
