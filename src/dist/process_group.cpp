#include "dist/process_group.h"

#include "base/error.h"
#include "dist/mpi_library.h"

namespace longhaul::dist {

void ProcessGroup::set_step(std::int64_t step) const {
  for (Communicator* comm : {world.get(), sp.get(), dp.get()}) {
    comm->set_step(step);
  }
}

void ProcessGroup::set_deadline(std::chrono::milliseconds deadline) const {
  for (Communicator* comm : {world.get(), sp.get(), dp.get()}) {
    comm->set_deadline(deadline);
  }
}

ProcessGroup make_process_group(std::unique_ptr<Communicator> world, config::Mesh mesh) {
  LONGHAUL_ASSERT(world->size() == mesh.ranks(), "the mesh holds every rank of the world");
  ProcessGroup group;
  group.mesh = mesh;
  group.sp = world->split(static_cast<int>(mesh.dp_rank(world->rank())));
  group.dp = world->split(static_cast<int>(mesh.sp_rank(world->rank())));
  group.world = std::move(world);
  return group;
}

ProcessGroup make_process_group(const config::LaunchInfo& launch, config::Mesh mesh,
                                OperationObserver* observer) {
  if (launch.ranks == 1) {
    return make_process_group(make_single(), mesh);
  }
  return make_process_group(
      open_mpi_world({.rank = launch.rank, .ranks = launch.ranks, .observer = observer}), mesh);
}

}  // namespace longhaul::dist
