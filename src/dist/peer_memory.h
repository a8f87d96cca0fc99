// A buffer on every rank of a group that all its peers write directly: GPUs of one host over NVLink, or threads. One
// exchange is open(), for each of its parts writes into the peers' buffers and deliver(), for each part await() and reads
// of one's own buffer, taken(). All of it is enqueued on the current stream; no call waits on the host where the transport
// works by streams. open(), writes and deliver() belong beside compute (ops/side_stream.h), await() and reads on compute,
// whose multiprocessors wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace longhaul::dist {

class Communicator;
struct CommCounters;

class PeerMemory {
 public:
  PeerMemory() = default;
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  /// Collective, unless an exception is in flight.
  virtual ~PeerMemory() = default;

  /// Size of each rank's buffer.
  [[nodiscard]] virtual std::int64_t bytes() const = 0;
  /// The buffer of a rank as this rank reaches it.
  [[nodiscard]] virtual std::byte* of(int rank) const = 0;

  /// Before the first write of an exchange of `parts` parts: all peers have taken what lies in their buffers.
  ///
  /// Order   collective, as all that follow are: deliver() for every part, then await() for every part, then taken()
  /// Errors  SystemError as the communicator's calls
  virtual void open(std::string_view name, std::int64_t parts) = 0;
  /// After the writes of a part, `sent_bytes` of them.
  virtual void deliver(std::int64_t sent_bytes) = 0;
  /// Before the reads of the next part: what peers wrote for it is there. The last one ends the exchange's time.
  virtual void await(std::string_view name) = 0;
  /// After the last read of this rank's own buffer.
  virtual void taken() = 0;
};

/// Between threads of one process: the buffers are host memory. Collective over `comm`, which outlives the result;
/// exchanges are booked in `counters`.
std::unique_ptr<PeerMemory> make_thread_peer_memory(Communicator& comm, CommCounters& counters,
                                                    std::int64_t bytes);

}  // namespace longhaul::dist
