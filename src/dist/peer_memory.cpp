#include "dist/peer_memory.h"

#include <chrono>
#include <exception>
#include <vector>

#include "base/error.h"
#include "dist/communicator.h"

namespace longhaul::dist {
namespace {

using Clock = std::chrono::steady_clock;

class ThreadPeerMemory final : public PeerMemory {
 public:
  ThreadPeerMemory(Communicator& comm, CommCounters& counters, std::int64_t bytes)
      : comm_(comm),
        counters_(counters),
        own_(static_cast<std::size_t>(bytes)),
        buffers_(static_cast<std::size_t>(comm.size())) {
    std::byte* const mine = own_.data();
    const std::vector<std::int64_t> sizes(buffers_.size(), sizeof(mine));
    comm_.all_gather("share memory", &mine, sizeof(mine), buffers_.data(), sizes);
  }

  [[nodiscard]] std::int64_t bytes() const override {
    return static_cast<std::int64_t>(own_.size());
  }
  [[nodiscard]] std::byte* of(int rank) const override {
    return buffers_[static_cast<std::size_t>(rank)];
  }

  void open(std::string_view name) override {
    LONGHAUL_ASSERT(!is_open_, "one exchange at a time");
    begin_ = Clock::now();
    is_open_ = true;
    comm_.barrier(name);
  }
  void deliver(std::string_view name, std::int64_t sent_bytes) override {
    LONGHAUL_ASSERT(is_open_, "open() comes before deliver()");
    comm_.barrier(name);
    counters_.exchange_s += std::chrono::duration<double>(Clock::now() - begin_).count();
    counters_.exchange_bytes += sent_bytes;
    ++counters_.num_exchanges;
  }
  void taken() override {
    LONGHAUL_ASSERT(is_open_, "deliver() comes before taken()");
    is_open_ = false;  // the next open() is where peers wait for it
  }

 private:
  Communicator& comm_;
  CommCounters& counters_;
  std::vector<std::byte> own_;
  std::vector<std::byte*> buffers_;
  Clock::time_point begin_;
  bool is_open_ = false;
};

}  // namespace

std::unique_ptr<PeerMemory> make_thread_peer_memory(Communicator& comm, CommCounters& counters,
                                                    std::int64_t bytes) {
  return std::make_unique<ThreadPeerMemory>(comm, counters, bytes);
}

}  // namespace longhaul::dist
