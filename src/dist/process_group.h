// The communicators of one run: all ranks, this rank's sequence-parallel group, and its peers of
// other data-parallel groups.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "config/config.h"
#include "dist/communicator.h"
#include "dist/operation_observer.h"

namespace longhaul::dist {

/// Made once per process; destroyed without an exception in flight it waits for the other ranks and
/// closes MPI. A group of all ranks is the world itself, counters included: exchanges are the sp
/// group's alone, the time inside collectives is everybody's. A group of one rank knows no other that
/// its abort() could end.
struct ProcessGroup {
  std::shared_ptr<Communicator> world;  // every rank
  std::shared_ptr<Communicator> sp;  // ranks that share sequences; rank in it = mesh.sp_rank(rank)
  std::shared_ptr<Communicator> dp;  // ranks with the same sp rank; rank in it = mesh.dp_rank(rank)
  config::Mesh mesh;

  /// The step that messages and the status page name from now on.
  void set_step(std::int64_t step) const;
  void set_deadline(std::chrono::milliseconds deadline) const;
};

/// All ranks of the launch environment: one rank alone, CPU ranks through MPI, GPU ranks through NCCL
/// (the CUDA backend is loaded; they meet at MASTER_ADDR:MASTER_PORT, or through MPI when mpirun or
/// srun names no such place).
///
/// Order   collective
/// Errors  SystemError when MPI is missing, its ranks are not those of the environment, or not all
/// ranks come
std::unique_ptr<Communicator> open_world(const config::LaunchInfo& launch,
                                         OperationObserver* observer = nullptr,
                                         at::Device device = at::kCPU);

/// Cuts `world` by the mesh, which is the same on every rank. The world may be threads (tests), MPI
/// processes, GPUs or a single rank.
///
/// Order   collective
ProcessGroup make_process_group(std::unique_ptr<Communicator> world, config::Mesh mesh);

}  // namespace longhaul::dist
