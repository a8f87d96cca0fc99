// Every rank's memory: [its buffer, a multiple of 2 MiB][arrived, a flag per rank][taken, a flag per rank]. Flags count:
// rank r raises `arrived[r]` at its peers when it has written a part into their buffers, and `taken[r]` at its peers when
// it has read all parts of an exchange in its own, so that they may write again.
#include "dist/cuda/nccl_peer_memory.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "base/ceil_div.h"
#include "base/error.h"
#include "dist/cuda/peer_signal.h"

namespace longhaul::dist {
namespace {

constexpr std::int64_t kPage = std::int64_t{2}
                               << 20;  // what an exported allocation is a multiple of

/// What a rank tells the others about its memory.
struct Offer {
  std::array<char, 64> host{};  // of the kernel's boot: equal for processes of one machine
  std::int64_t is_there = 0;
  cudaIpcMemHandle_t handle{};
};

std::array<char, 64> boot_id() {
  std::array<char, 64> id{};
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  std::memcpy(id.data(), text.data(), std::min(text.size(), id.size() - 1));
  return id;
}

/// A status that is no error of the program: the way does not exist here.
bool succeeds(cudaError_t status) {
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
  }
  return status == cudaSuccess;
}

class NcclPeerMemory final : public PeerMemory {
 public:
  NcclPeerMemory(Communicator& comm, std::shared_ptr<NcclWatch> watch,
                 std::shared_ptr<NcclWatch::Account> account, std::int64_t bytes)
      : comm_(comm),
        watch_(std::move(watch)),
        account_(std::move(account)),
        bytes_(base::round_up(bytes, kPage)),
        buffers_(static_cast<std::size_t>(comm.size())) {
    last_values_.fill(kEndOfWaits);
    check_cuda(cudaStreamCreateWithFlags(&abort_stream_, cudaStreamNonBlocking), "peer memory");
  }
  ~NcclPeerMemory() override;

  /// False, on every rank, when the ranks cannot map one another's memory. Collective.
  bool connect();

  [[nodiscard]] std::int64_t bytes() const override { return bytes_; }
  [[nodiscard]] std::byte* of(int rank) const override {
    return buffers_[static_cast<std::size_t>(rank)];
  }
  void open(std::string_view name, std::int64_t parts) override;
  void deliver(std::int64_t sent_bytes) override;
  void await(std::string_view name) override;
  void taken() override;

 private:
  [[nodiscard]] static cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
  [[nodiscard]] std::uint32_t* flags_of(int rank) const {
    return reinterpret_cast<std::uint32_t*>(of(rank) + bytes_);
  }
  [[nodiscard]] bool map(const std::vector<Offer>& offers);
  void choose_flags();
  void end_waits() const;
  void close();

  Communicator& comm_;
  std::shared_ptr<NcclWatch> watch_;
  std::shared_ptr<NcclWatch::Account> account_;
  std::int64_t bytes_;
  std::vector<std::byte*> buffers_;  // null where nothing is mapped
  std::array<std::uint32_t, 2 * kMostPeers> last_values_{};
  cudaStream_t abort_stream_ = nullptr;
  std::uint32_t exchanges_ = 0;  // taken
  std::uint32_t delivered_ = 0;  // parts
  std::uint32_t awaited_ = 0;
  std::int64_t unread_ = 0;  // parts of the exchange under way
  PeerFlags arrived_here_;
  PeerFlags taken_here_;
  PeerFlags arrived_there_;
  PeerFlags taken_there_;
  NcclWatch::Pending pending_;
};

bool NcclPeerMemory::connect() {
  const auto me = static_cast<std::size_t>(comm_.rank());
  const std::size_t ranks = buffers_.size();
  const auto flag_bytes = static_cast<std::int64_t>(2 * ranks * sizeof(std::uint32_t));
  const auto rounded = static_cast<std::size_t>(bytes_ + base::round_up(flag_bytes, kPage));
  Offer mine{.host = boot_id()};
  void* memory = nullptr;
  if (ranks <= kMostPeers && can_signal_peers(c10::cuda::current_device()) &&
      succeeds(cudaMalloc(&memory, rounded))) {
    buffers_[me] = static_cast<std::byte*>(memory);
    mine.is_there = succeeds(cudaMemset(memory, 0, rounded)) && succeeds(cudaDeviceSynchronize()) &&
                            succeeds(cudaIpcGetMemHandle(&mine.handle, memory))
                        ? 1
                        : 0;
  }
  std::vector<Offer> offers(ranks);
  const std::vector<std::int64_t> sizes(ranks, sizeof(Offer));
  comm_.all_gather("share GPU memory", &mine, sizeof(Offer), offers.data(), sizes);
  std::array<double, 1> is_missing = {map(offers) ? 0.0 : 1.0};
  comm_.all_reduce_max("share GPU memory", std::span<double>(is_missing));
  if (is_missing[0] != 0) {
    return false;
  }
  choose_flags();
  watch_->add_abort_action(this, [this] { end_waits(); });
  return true;
}

/// From host memory, on a stream that waits for nobody.
void NcclPeerMemory::end_waits() const {
  const std::size_t bytes = 2 * buffers_.size() * sizeof(std::uint32_t);
  (void)cudaMemcpyAsync(flags_of(comm_.rank()), last_values_.data(), bytes, cudaMemcpyHostToDevice,
                        abort_stream_);
}

/// Every decision before the first mapping is the same on every rank.
bool NcclPeerMemory::map(const std::vector<Offer>& offers) {
  const bool can = std::all_of(offers.begin(), offers.end(), [&](const Offer& offer) {
    return offer.is_there != 0 && offer.host == offers.front().host;
  });
  for (std::size_t rank = 0; can && rank < offers.size(); ++rank) {
    if (buffers_[rank] != nullptr) {
      continue;
    }
    void* mapped = nullptr;
    if (!succeeds(
            cudaIpcOpenMemHandle(&mapped, offers[rank].handle, cudaIpcMemLazyEnablePeerAccess))) {
      return false;
    }
    buffers_[rank] = static_cast<std::byte*>(mapped);
  }
  return can;
}

void NcclPeerMemory::choose_flags() {
  const int me = comm_.rank();
  const int ranks = comm_.size();
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == me) {
      continue;
    }
    const auto add = [](PeerFlags& flags, std::uint32_t* flag) {
      flags.flag[flags.count++] = flag;
    };
    add(arrived_here_, flags_of(me) + peer);
    add(taken_here_, flags_of(me) + ranks + peer);
    add(arrived_there_, flags_of(peer) + me);
    add(taken_there_, flags_of(peer) + ranks + me);
  }
}

void NcclPeerMemory::open(std::string_view name, std::int64_t parts) {
  LONGHAUL_ASSERT(unread_ == 0, "one exchange at a time");
  unread_ = parts;
  pending_ = watch_->begins(name, comm_.step(), comm_.deadline(), stream());
  pending_.account = account_;
  pending_.is_exchange = true;
  check_cuda(wait_for_peers(taken_here_, exchanges_, stream()), "peer memory");
}

void NcclPeerMemory::deliver(std::int64_t sent_bytes) {
  check_cuda(signal_peers(arrived_there_, ++delivered_, stream()), "peer memory");
  watch_->change(*account_, [&](CommCounters& now) { now.exchange_bytes += sent_bytes; });
}

void NcclPeerMemory::await(std::string_view name) {
  check_cuda(spin_for_peers(arrived_here_, ++awaited_, stream()), name);
  if (--unread_ == 0) {
    watch_->enqueued(std::move(pending_), stream());
  }
}

void NcclPeerMemory::taken() {
  check_cuda(signal_peers(taken_there_, ++exchanges_, stream()), "peer memory");
}

void NcclPeerMemory::close() {
  for (std::size_t rank = 0; rank < buffers_.size(); ++rank) {
    if (buffers_[rank] != nullptr && rank != static_cast<std::size_t>(comm_.rank())) {
      cudaIpcCloseMemHandle(buffers_[rank]);
    }
  }
}

/// Nobody frees memory that a peer still writes to, unless the job is failing.
NcclPeerMemory::~NcclPeerMemory() {
  const bool is_healthy = std::uncaught_exceptions() == 0 && !watch_->has_failed();
  try {
    if (is_healthy) {
      check_cuda(cudaStreamSynchronize(stream()), "release GPU memory");
      close();
      comm_.barrier("release GPU memory");
    }
  } catch (const std::exception&) {
    // A peer is gone; its own report explains it.
  }
  watch_->remove_abort_action(this);
  if (is_healthy) {
    cudaFree(of(comm_.rank()));
    cudaStreamDestroy(abort_stream_);
  }
}

}  // namespace

std::unique_ptr<PeerMemory> make_nccl_peer_memory(Communicator& comm,
                                                  std::shared_ptr<NcclWatch> watch,
                                                  std::shared_ptr<NcclWatch::Account> account,
                                                  std::int64_t bytes) {
  auto memory = std::make_unique<NcclPeerMemory>(comm, std::move(watch), std::move(account), bytes);
  if (!memory->connect()) {
    return nullptr;
  }
  return memory;
}

}  // namespace longhaul::dist
