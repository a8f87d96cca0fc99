#include "dist/process_group.h"

#include "base/error.h"
#include "dist/key_store.h"
#include "dist/mpi_library.h"
#include "dist/nccl_library.h"
#include "dist/rendezvous.h"

namespace longhaul::dist {
namespace {

/// Time for all ranks to come up.
constexpr std::chrono::minutes kStart{3};

/// MPI only carries the id by which the ranks' GPUs find one another.
std::string share_through_mpi(const config::LaunchInfo& launch, std::string id) {
  const auto mpi = open_mpi_world({.rank = launch.rank, .ranks = launch.ranks});
  auto bytes = static_cast<std::int64_t>(id.size());
  mpi->broadcast("share NCCL's id", &bytes, sizeof(bytes), 0);
  id.resize(static_cast<std::size_t>(bytes));
  mpi->broadcast("share NCCL's id", id.data(), bytes, 0);
  return id;
}

std::unique_ptr<Communicator> open_gpu_world(const config::LaunchInfo& launch,
                                             OperationObserver* observer) {
  const MeetingPlace place = read_meeting_place(process_environment());
  std::unique_ptr<KeyStore> store;  // its server must live until every rank has read the id
  const auto share = [&](const std::string& id) {
    if (place.host.empty()) {
      return share_through_mpi(launch, id);
    }
    constexpr std::string_view kKey = "id of NCCL";
    store = open_key_store(place, launch.rank, kStart);
    if (launch.rank == 0) {
      store->set(kKey, id);
    }
    return store->get(kKey);
  };
  return open_nccl_world(launch.rank, launch.ranks, share, kStart, observer);
}

/// This rank's group of `size` ranks, those with its `color`. Every communicator of GPUs takes about
/// a gigabyte of each, so only a group that is neither the world nor one rank gets its own.
std::shared_ptr<Communicator> group_of(const std::shared_ptr<Communicator>& world,
                                       std::int64_t size, std::int64_t color) {
  if (size == world->size()) {
    return world;
  }
  if (size > 1) {
    return world->split(static_cast<int>(color));
  }
  std::shared_ptr<Communicator> alone = make_single();
  alone->set_step(world->step());
  alone->set_deadline(world->deadline());
  return alone;
}

}  // namespace

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
  group.world = std::move(world);
  const std::int64_t rank = group.world->rank();
  group.sp = group_of(group.world, mesh.sp, mesh.dp_rank(rank));
  group.dp = group_of(group.world, mesh.dp, mesh.sp_rank(rank));
  return group;
}

std::unique_ptr<Communicator> open_world(const config::LaunchInfo& launch,
                                         OperationObserver* observer, at::Device device) {
  if (launch.ranks == 1) {
    return make_single();
  }
  if (!device.is_cpu()) {
    return open_gpu_world(launch, observer);
  }
  return open_mpi_world({.rank = launch.rank, .ranks = launch.ranks, .observer = observer});
}

}  // namespace longhaul::dist
