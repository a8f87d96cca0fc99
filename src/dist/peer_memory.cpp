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

  void open(std::string_view name, std::int64_t parts) override {
    LONGHAUL_ASSERT(unsent_ == 0 && unread_ == 0 && is_taken_, "one exchange at a time");
    begin_ = Clock::now();
    unsent_ = unread_ = parts;
    is_taken_ = false;
    comm_.barrier(name);
  }
  void deliver(std::int64_t sent_bytes) override {
    LONGHAUL_ASSERT(unsent_ > 0, "open() comes before deliver()");
    --unsent_;
    counters_.exchange_bytes += sent_bytes;
  }
  void await(std::string_view name) override {
    LONGHAUL_ASSERT(unsent_ == 0 && unread_ > 0,
                    "all parts are delivered before the first await()");
    comm_.barrier(name);
    if (--unread_ == 0) {
      counters_.exchange_s += std::chrono::duration<double>(Clock::now() - begin_).count();
      ++counters_.num_exchanges;
    }
  }
  void taken() override {
    LONGHAUL_ASSERT(unread_ == 0 && !is_taken_, "all parts are awaited before taken()");
    is_taken_ = true;  // the next open() is where peers wait for it
  }

 private:
  Communicator& comm_;
  CommCounters& counters_;
  std::vector<std::byte> own_;
  std::vector<std::byte*> buffers_;
  Clock::time_point begin_;
  std::int64_t unsent_ = 0;  // parts of the exchange under way
  std::int64_t unread_ = 0;
  bool is_taken_ = true;
};

}  // namespace

std::unique_ptr<PeerMemory> make_thread_peer_memory(Communicator& comm, CommCounters& counters,
                                                    std::int64_t bytes) {
  return std::make_unique<ThreadPeerMemory>(comm, counters, bytes);
}

}  // namespace longhaul::dist
