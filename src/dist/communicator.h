// Collectives between the ranks of one group, on raw memory: `threads` (ranks are threads of one
// process), `mpi` (CPU processes), `nccl` (GPU processes; memory of the GPU or of the host). Every
// call carries a name and a deadline; a peer that is gone or late ends it, or with NCCL, whose calls
// return before their work is done, one of the next, with a SystemError that names rank, step and
// operation. Reductions add in rank order (GPU memory: in NCCL's order, fixed for a layout), so
// results do not depend on timing. No torch here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dist/peer_memory.h"

namespace longhaul::dist {

/// Bytes and seconds spent in exchanges, for the log line.
struct CommCounters {
  double wait_s = 0;                // time this rank spent inside collectives
  std::int64_t exchange_bytes = 0;  // bytes sent to other ranks by all_to_all
  double exchange_s = 0;            // time inside all_to_all
  std::int64_t num_exchanges = 0;
};

/// One group of ranks. Every method but the accessors is collective: all ranks of the group call it
/// in the same order.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Rank r's send block p (send_bytes[p] bytes, blocks consecutive in rank order) arrives as rank
  /// p's receive block r. A rank's block for itself is left alone when one of its two sizes is 0:
  /// it lies where it belongs, or is used where it is.
  virtual void all_to_all(std::string_view name, const void* send,
                          std::span<const std::int64_t> send_bytes, void* receive,
                          std::span<const std::int64_t> receive_bytes) = 0;
  /// Concatenates every rank's block in rank order; sizes may differ and may be zero.
  virtual void all_gather(std::string_view name, const void* send, std::int64_t send_bytes,
                          void* receive, std::span<const std::int64_t> receive_bytes) = 0;
  /// In-place sums in rank order, equal bits on every rank.
  virtual void all_reduce_sum(std::string_view name, std::span<float> values) = 0;
  virtual void all_reduce_sum(std::string_view name, std::span<double> values) = 0;
  virtual void all_reduce_sum(std::string_view name, std::span<std::int64_t> values) = 0;
  virtual void all_reduce_max(std::string_view name, std::span<double> values) = 0;
  /// Each rank keeps the sum (in rank order) of its block; block sizes in elements per rank.
  virtual void reduce_scatter_sum(std::string_view name, std::span<const float> send,
                                  std::span<float> receive,
                                  std::span<const std::int64_t> block_elements) = 0;
  virtual void broadcast(std::string_view name, void* data, std::int64_t bytes, int root) = 0;
  virtual void barrier(std::string_view name) = 0;
  /// New groups: ranks with equal `color` form one, ordered by their present rank.
  virtual std::unique_ptr<Communicator> split(int color) = 0;
  /// Buffers of so many bytes that the ranks of this group write directly; null on every rank where
  /// the transport has none.
  virtual std::unique_ptr<PeerMemory> make_peer_memory(std::int64_t /*bytes*/) { return nullptr; }
  /// Ends the whole job because of a fault here; other ranks' collectives fail within seconds. Does
  /// not return normally where the transport kills the process.
  virtual void abort(const std::string& reason) = 0;

  /// Step number used in messages.
  void set_step(std::int64_t step) { step_ = step; }
  [[nodiscard]] std::int64_t step() const { return step_; }
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  [[nodiscard]] std::chrono::milliseconds deadline() const { return deadline_; }
  /// Of everything that has been called; waits for its end where calls return before it.
  ///
  /// Errors  SystemError when it fails
  [[nodiscard]] virtual const CommCounters& counters() const { return counters_; }
  virtual void reset_counters() { counters_ = {}; }

 protected:
  CommCounters counters_;

 private:
  std::int64_t step_ = 0;
  std::chrono::milliseconds deadline_{std::chrono::minutes(30)};
};

/// A group of one; every operation is a local copy or nothing.
std::unique_ptr<Communicator> make_single();

}  // namespace longhaul::dist
