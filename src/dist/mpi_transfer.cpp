#include "dist/mpi_transfer.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/error.h"
#include "dist/comm_error.h"

namespace longhaul::dist {
namespace {

using Clock = std::chrono::steady_clock;

/// Messages are cut into pieces: below MPI's int counts, and small enough that a finished piece
/// shows progress.
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
constexpr int kTagsPerGroup = 8192;
/// How long a rank keeps looking without a pause when nothing arrives.
constexpr std::chrono::milliseconds kBusyWait{10};
constexpr std::chrono::microseconds kPause{50};

std::string mpi_message(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

std::string MpiTransfer::place(const TransferContext& context) const {
  return operation_place(world_->rank, context.step, context.name);
}

void MpiTransfer::check_call(const TransferContext& context, int code) {
  if (code == MPI_SUCCESS) {
    return;
  }
  world_->has_failed = true;
  int error_class = 0;
  MPI_Error_class(code, &error_class);
  if (error_class == MPI_ERR_TRUNCATE) {
    throw base::InternalError(
        {.where = place(context),
         .what = "a peer is in another operation: its block is too large (MPI: " +
                 mpi_message(code) + ")"});
  }
  throw base::SystemError({.where = place(context), .what = "MPI: " + mpi_message(code)});
}

void MpiTransfer::post(const TransferContext& context, const Block& block, bool is_send, int tag,
                       Flight& flight) {
  for (std::int64_t offset = 0; offset < block.bytes; offset += kPieceBytes) {
    const auto piece = static_cast<int>(std::min(kPieceBytes, block.bytes - offset));
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = is_send ? MPI_Isend(block.data + offset, piece, MPI_BYTE, member(block.peer),
                                         tag, MPI_COMM_WORLD, &request)
                             : MPI_Irecv(block.data + offset, piece, MPI_BYTE, member(block.peer),
                                         tag, MPI_COMM_WORLD, &request);
    check_call(context, code);
    flight.requests.push_back(request);
    flight.peers.push_back(block.peer);
    flight.expected_bytes.push_back(is_send ? -1 : piece);
  }
}

void MpiTransfer::run(const TransferContext& context, std::span<const Block> sends,
                      std::span<const Block> receives) {
  const int tag = context_ * kTagsPerGroup + sequence_;
  sequence_ = (sequence_ + 1) % kTagsPerGroup;
  Flight flight;
  for (const Block& block : receives) {
    post(context, block, false, tag, flight);
  }
  for (const Block& block : sends) {
    post(context, block, true, tag, flight);
  }
  poll(context, flight);
}

void MpiTransfer::check_arrivals(const TransferContext& context, const Flight& flight,
                                 std::span<const int> indices,
                                 std::span<const MPI_Status> statuses) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto request = static_cast<std::size_t>(indices[i]);
    const int expected = flight.expected_bytes[request];
    if (expected < 0) {
      continue;
    }
    int bytes = 0;
    MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
    if (bytes != expected) {
      world_->has_failed = true;
      throw base::InternalError(
          {.where = place(context),
           .what = fmt::format("rank {} is in another operation: its block has another size",
                               member(flight.peers[request])),
           .got = fmt::format("{} bytes", bytes),
           .expected = fmt::format("{}", expected)});
    }
  }
}

/// Number of requests that completed now.
int MpiTransfer::test_some(const TransferContext& context, Flight& flight,
                           std::vector<int>& indices, std::vector<MPI_Status>& statuses) {
  int completed = 0;
  const int code = MPI_Testsome(static_cast<int>(flight.requests.size()), flight.requests.data(),
                                &completed, indices.data(), statuses.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (int i = 0; i < completed; ++i) {
      check_call(context, statuses[static_cast<std::size_t>(i)].MPI_ERROR);
    }
  }
  check_call(context, code);
  return completed == MPI_UNDEFINED ? 0 : completed;
}

/// Waits for everything in flight. The core is given away between looks: there may be more ranks
/// than cores.
void MpiTransfer::poll(const TransferContext& context, Flight& flight) {
  std::vector<int> indices(flight.requests.size());
  std::vector<MPI_Status> statuses(flight.requests.size());
  const auto until = Clock::now() + context.deadline;
  auto last_progress = Clock::now();
  auto missing = static_cast<int>(flight.requests.size());
  while (missing > 0) {
    const int completed = test_some(context, flight, indices, statuses);
    const auto now = Clock::now();
    if (completed > 0) {
      const auto done = static_cast<std::size_t>(completed);
      check_arrivals(context, flight, {indices.data(), done}, {statuses.data(), done});
      missing -= completed;
      last_progress = now;
    } else if (now > until) {
      raise_late(context, flight);
    } else if (now - last_progress > kBusyWait) {
      std::this_thread::sleep_for(kPause);
    } else {
      sched_yield();
    }
  }
}

/// Names the peer whose block is missing; a peer that only has not taken ours yet comes second.
void MpiTransfer::raise_late(const TransferContext& context, const Flight& flight) {
  world_->has_failed = true;
  int late = -1;
  for (const bool looks_at_sends : {false, true}) {
    for (std::size_t i = 0; i < flight.requests.size() && late < 0; ++i) {
      const bool is_pending = flight.requests[i] != MPI_REQUEST_NULL;
      if (is_pending && (flight.expected_bytes[i] < 0) == looks_at_sends) {
        late = member(flight.peers[i]);
      }
    }
  }
  throw PeerError(
      {.where = operation_place(late, context.step, context.name),
       .what = fmt::format("did not arrive within {:.3g} s; rank {} gave up waiting",
                           std::chrono::duration<double>(context.deadline).count(), world_->rank)});
}

}  // namespace longhaul::dist
