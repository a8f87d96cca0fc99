#include "dist/nccl_library.h"

#include "ops/cuda_library.h"

namespace longhaul::dist {

std::unique_ptr<Communicator> open_nccl_world(std::int64_t rank, std::int64_t ranks,
                                              const ShareBytes& share,
                                              std::chrono::milliseconds deadline,
                                              OperationObserver* observer) {
  using MakeId = int (*)(char* id, int capacity);
  using MakeWorld = Communicator* (*)(const NcclWorldRequest*);
  const auto make_id = reinterpret_cast<MakeId>(ops::cuda_symbol("longhaul_nccl_unique_id"));
  const auto make_world = reinterpret_cast<MakeWorld>(ops::cuda_symbol("longhaul_nccl_world"));
  std::string id;
  if (rank == 0) {
    constexpr int kMostBytes = 4096;
    id.resize(kMostBytes);
    id.resize(static_cast<std::size_t>(make_id(id.data(), kMostBytes)));
  }
  id = share(id);
  const NcclWorldRequest request{.rank = static_cast<int>(rank),
                                 .ranks = static_cast<int>(ranks),
                                 .unique_id = id.data(),
                                 .start_deadline_ms = deadline.count(),
                                 .observer = observer};
  return std::unique_ptr<Communicator>(make_world(&request));
}

}  // namespace longhaul::dist
