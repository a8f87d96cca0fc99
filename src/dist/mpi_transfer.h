// The one primitive under every MPI collective: blocks sent and received without blocking, polled
// under a deadline, so that a peer that is gone or late ends the call with its name. Part of the
// MPI shared object only.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/operation_observer.h"

namespace longhaul::dist {

/// What all MPI communicators of this process share.
struct MpiWorld {
  int rank = 0;
  int ranks = 1;
  int next_context = 1;     // tag ranges given to groups so far
  bool has_failed = false;  // nothing is sent any more
  int exceptions_at_start = std::uncaught_exceptions();
  OperationObserver* observer = nullptr;
};

/// A block to or from one peer; `peer` is a rank of the group. Sent data is only read.
struct Block {
  int peer = 0;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

/// Name, step and deadline of the operation that a transfer belongs to.
struct TransferContext {
  std::string_view name;
  std::int64_t step = 0;
  std::chrono::milliseconds deadline{};
};

/// Point-to-point traffic of one group: a list of world ranks with a tag range of its own.
class MpiTransfer {
 public:
  MpiTransfer(std::shared_ptr<MpiWorld> world, std::vector<int> members, int context)
      : world_(std::move(world)), members_(std::move(members)), context_(context) {}

  /// Sends and receives all blocks; blocks without bytes are left out on both sides.
  ///
  /// Order   collective in the group: the n-th transfer of every member belongs together
  /// Errors  PeerError naming a rank that did not come in time; InternalError when a peer's block
  /// has another size
  void run(const TransferContext& context, std::span<const Block> sends,
           std::span<const Block> receives);

  [[nodiscard]] const std::vector<int>& members() const { return members_; }
  [[nodiscard]] MpiWorld& world() const { return *world_; }
  [[nodiscard]] const std::shared_ptr<MpiWorld>& shared_world() const { return world_; }

 private:
  /// Requests in flight, with the peer and the size that each must bring.
  struct Flight {
    std::vector<MPI_Request> requests;
    std::vector<int> peers;
    std::vector<int> expected_bytes;  // −1 for a send
  };

  void post(const TransferContext& context, const Block& block, bool is_send, int tag,
            Flight& flight);
  void poll(const TransferContext& context, Flight& flight);
  int test_some(const TransferContext& context, Flight& flight, std::vector<int>& indices,
                std::vector<MPI_Status>& statuses);
  void check_arrivals(const TransferContext& context, const Flight& flight,
                      std::span<const int> indices, std::span<const MPI_Status> statuses);
  [[noreturn]] void raise_late(const TransferContext& context, const Flight& flight);
  void check_call(const TransferContext& context, int code);
  [[nodiscard]] std::string place(const TransferContext& context) const;
  [[nodiscard]] int member(int group_rank) const {
    return members_[static_cast<std::size_t>(group_rank)];
  }

  std::shared_ptr<MpiWorld> world_;
  std::vector<int> members_;  // world ranks of this group
  int context_;
  int sequence_ = 0;
};

}  // namespace longhaul::dist
