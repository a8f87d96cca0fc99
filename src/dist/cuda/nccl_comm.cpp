// GPU ranks: collectives through NCCL on the stream that libtorch computes on, so that they are in order with the
// kernels around them and nobody waits on the host. Small sums in host memory go through the GPU too, are added up in
// rank order on the host, and the call waits for them.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <nccl.h>

#include <array>
#include <cstring>
#include <exception>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dist/comm_error.h"
#include "dist/communicator.h"
#include "dist/cuda/nccl_peer_memory.h"
#include "dist/cuda/nccl_watch.h"
#include "dist/nccl_library.h"
#include "dist/rank_order.h"

namespace longhaul::dist {
namespace {

using Sizes = std::span<const std::int64_t>;

std::int64_t sum_of(Sizes sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

void check_nccl(ncclResult_t status, int rank, std::string_view name) {
  if (status != ncclSuccess) {
    const char* detail = ncclGetLastError(nullptr);
    throw base::SystemError({.where = fmt::format("rank {}, {}", rank, name),
                             .what = fmt::format("NCCL: {}", ncclGetErrorString(status)),
                             .got = detail == nullptr ? "" : detail});
  }
}

bool is_on_device(const void* memory) {
  cudaPointerAttributes attributes{};
  return memory != nullptr && cudaPointerGetAttributes(&attributes, memory) == cudaSuccess &&
         attributes.type == cudaMemoryTypeDevice;
}

/// Memory of libtorch's allocator for as long as this object lives.
class DeviceBytes {
 public:
  DeviceBytes(std::int64_t bytes, cudaStream_t stream)
      : data_(bytes > 0
                  ? static_cast<std::byte*>(c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
                        static_cast<std::size_t>(bytes), stream))
                  : nullptr) {}
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() {
    if (data_ != nullptr) {
      c10::cuda::CUDACachingAllocator::raw_delete(data_);
    }
  }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};

template <typename T>
constexpr ncclDataType_t kNcclType = ncclFloat32;
template <>
constexpr ncclDataType_t kNcclType<double> = ncclFloat64;
template <>
constexpr ncclDataType_t kNcclType<std::int64_t> = ncclInt64;

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclWatch> watch, ncclComm_t comm, int rank, int size,
                   bool is_world)
      : watch_(std::move(watch)), comm_(comm), rank_(rank), size_(size), is_world_(is_world) {
    watch_->add(comm_);
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void all_to_all(std::string_view name, const void* send, Sizes send_bytes, void* receive,
                  Sizes receive_bytes) override;
  void all_gather(std::string_view name, const void* send, std::int64_t send_bytes, void* receive,
                  Sizes receive_bytes) override;
  void all_reduce_sum(std::string_view name, std::span<float> values) override {
    all_reduce(name, values, ncclSum, add_to_sum<float>);
  }
  void all_reduce_sum(std::string_view name, std::span<double> values) override {
    all_reduce(name, values, ncclSum, add_to_sum<double>);
  }
  void all_reduce_sum(std::string_view name, std::span<std::int64_t> values) override {
    all_reduce(name, values, ncclSum, add_to_sum<std::int64_t>);
  }
  void all_reduce_max(std::string_view name, std::span<double> values) override {
    all_reduce(name, values, ncclMax, take_maximum<double>);
  }
  void reduce_scatter_sum(std::string_view name, std::span<const float> send,
                          std::span<float> receive, Sizes block_elements) override;
  void broadcast(std::string_view name, void* data, std::int64_t bytes, int root) override;
  void barrier(std::string_view name) override;
  std::unique_ptr<Communicator> split(int color) override;
  std::unique_ptr<PeerMemory> make_peer_memory(std::int64_t bytes) override {
    return make_nccl_peer_memory(*this, watch_, account_, bytes);
  }
  void abort(const std::string& reason) override;

  [[nodiscard]] const CommCounters& counters() const override {
    watch_->wait_for_all("communication times", step());
    watch_->change(*account_, [&](const CommCounters& now) { seen_ = now; });
    return seen_;
  }
  void reset_counters() override {
    watch_->settle();
    watch_->change(*account_, [](CommCounters& now) { now = {}; });
  }

 private:
  template <typename T>
  using Combine = void (*)(std::span<T>, std::span<const T>);
  template <typename T>
  void all_reduce(std::string_view name, std::span<T> values, ncclRedOp_t operation,
                  Combine<T> combine);

  [[nodiscard]] static cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
  void check(ncclResult_t status, std::string_view name) const {
    check_nccl(status, watch_->world_rank(), name);
  }
  /// One operation on the stream, watched from its call to its end.
  template <typename Enqueue>
  void run(std::string_view name, bool is_exchange, Enqueue enqueue) {
    NcclWatch::Pending pending = watch_->begins(name, step(), deadline(), stream());
    pending.account = account_;
    pending.is_exchange = is_exchange;
    enqueue();
    watch_->enqueued(std::move(pending), stream());
  }
  /// Whether every peer gets a block of its own or all get the first.
  enum class SendBlocks { kOneForEach, kOneForAll };
  void exchange_blocks(std::string_view name, const std::byte* send, Sizes send_bytes,
                       std::byte* receive, Sizes receive_bytes, SendBlocks blocks) const;
  /// Runs `action(device_send, device_receive)` on copies of host memory and waits for the result.
  template <typename Action>
  void through_device(std::string_view name, const void* send, std::int64_t send_bytes,
                      void* receive, std::int64_t receive_bytes, Action action);
  void gather(std::string_view name, const std::byte* send, std::byte* receive, Sizes bytes);

  std::shared_ptr<NcclWatch> watch_;
  ncclComm_t comm_;
  int rank_;
  int size_;
  bool is_world_;
  std::shared_ptr<NcclWatch::Account> account_ = std::make_shared<NcclWatch::Account>();
  mutable CommCounters seen_;  // as counters() last gave them
};

/// Every rank's block to every rank; empty ones take no message, as both sides know.
void NcclCommunicator::exchange_blocks(std::string_view name, const std::byte* send,
                                       Sizes send_bytes, std::byte* receive, Sizes receive_bytes,
                                       SendBlocks blocks) const {
  const cudaStream_t on = stream();
  check(ncclGroupStart(), name);
  for (int peer = 0; peer < size_; ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    const auto out = static_cast<std::size_t>(send_bytes[i]);
    const auto in = static_cast<std::size_t>(receive_bytes[i]);
    if (peer == rank_) {
      const auto own = static_cast<std::size_t>(own_block_bytes(send_bytes[i], receive_bytes[i]));
      if (own > 0 && send != receive) {
        check_cuda(cudaMemcpyAsync(receive, send, own, cudaMemcpyDeviceToDevice, on), name);
      }
    } else {
      if (out > 0) {
        check(ncclSend(send, out, ncclUint8, peer, comm_, on), name);
      }
      if (in > 0) {
        check(ncclRecv(receive, in, ncclUint8, peer, comm_, on), name);
      }
    }
    send += blocks == SendBlocks::kOneForEach ? out : 0;
    receive += in;
  }
  check(ncclGroupEnd(), name);
}

template <typename Action>
void NcclCommunicator::through_device(std::string_view name, const void* send,
                                      std::int64_t send_bytes, void* receive,
                                      std::int64_t receive_bytes, Action action) {
  const DeviceBytes out(send_bytes, stream());
  const DeviceBytes in(receive_bytes, stream());
  if (send_bytes > 0) {
    check_cuda(cudaMemcpyAsync(out.data(), send, static_cast<std::size_t>(send_bytes),
                               cudaMemcpyHostToDevice, stream()),
               name);
  }
  action(out.data(), in.data());
  watch_->wait_for_all(name, step());
  if (receive_bytes > 0) {
    check_cuda(cudaMemcpyAsync(receive, in.data(), static_cast<std::size_t>(receive_bytes),
                               cudaMemcpyDeviceToHost, stream()),
               name);
    check_cuda(cudaStreamSynchronize(stream()), name);
  }
}

void NcclCommunicator::all_to_all(std::string_view name, const void* send, Sizes send_bytes,
                                  void* receive, Sizes receive_bytes) {
  LONGHAUL_ASSERT(send_bytes.size() == static_cast<std::size_t>(size_) &&
                      receive_bytes.size() == static_cast<std::size_t>(size_),
                  "all_to_all takes one size per rank");
  const auto mine = static_cast<std::size_t>(rank_);
  const auto exchange = [&](const std::byte* from, std::byte* to) {
    run(name, true, [&] {
      exchange_blocks(name, from, send_bytes, to, receive_bytes, SendBlocks::kOneForEach);
    });
  };
  const bool is_empty = sum_of(send_bytes) + sum_of(receive_bytes) == 0;
  watch_->change(*account_, [&](CommCounters& now) {
    now.exchange_bytes += sum_of(send_bytes) - send_bytes[mine];
    now.num_exchanges += is_empty ? 1 : 0;
  });
  if (is_empty) {  // no peer expects anything of this rank either
    return;
  }
  const bool is_host = (sum_of(send_bytes) > 0 && !is_on_device(send)) ||
                       (sum_of(receive_bytes) > 0 && !is_on_device(receive));
  if (!is_host) {
    exchange(static_cast<const std::byte*>(send), static_cast<std::byte*>(receive));
    return;
  }
  // The whole copy comes back to the host, so what is left alone there must lie in it.
  const std::int64_t kept = send_bytes[mine] == 0 ? receive_bytes[mine] : 0;
  const std::int64_t below = sum_of(receive_bytes.first(mine));
  through_device(
      name, send, sum_of(send_bytes), receive, sum_of(receive_bytes),
      [&](const std::byte* from, std::byte* to) {
        if (kept > 0) {
          check_cuda(
              cudaMemcpyAsync(to + below, static_cast<const std::byte*>(receive) + below,
                              static_cast<std::size_t>(kept), cudaMemcpyHostToDevice, stream()),
              name);
        }
        exchange(from, to);
      });
}

void NcclCommunicator::gather(std::string_view name, const std::byte* send, std::byte* receive,
                              Sizes bytes) {
  const std::vector<std::int64_t> mine(bytes.size(), bytes[static_cast<std::size_t>(rank_)]);
  run(name, false,
      [&] { exchange_blocks(name, send, mine, receive, bytes, SendBlocks::kOneForAll); });
}

void NcclCommunicator::all_gather(std::string_view name, const void* send, std::int64_t send_bytes,
                                  void* receive, Sizes receive_bytes) {
  LONGHAUL_ASSERT(receive_bytes.size() == static_cast<std::size_t>(size_) &&
                      receive_bytes[static_cast<std::size_t>(rank_)] == send_bytes,
                  "all_gather takes one size per rank");
  const std::int64_t total = sum_of(receive_bytes);
  const bool is_host =
      (total > 0 && !is_on_device(receive)) || (send_bytes > 0 && !is_on_device(send));
  if (is_host) {
    through_device(name, send, send_bytes, receive, total,
                   [&](std::byte* from, std::byte* to) { gather(name, from, to, receive_bytes); });
  } else {
    gather(name, static_cast<const std::byte*>(send), static_cast<std::byte*>(receive),
           receive_bytes);
  }
}

template <typename T>
void NcclCommunicator::all_reduce(std::string_view name, std::span<T> values, ncclRedOp_t operation,
                                  Combine<T> combine) {
  if (is_on_device(values.data())) {
    run(name, false, [&] {
      check(ncclAllReduce(values.data(), values.data(), values.size(), kNcclType<T>, operation,
                          comm_, stream()),
            name);
    });
    return;
  }
  const auto block = static_cast<std::int64_t>(values.size_bytes());
  const std::vector<std::int64_t> bytes(static_cast<std::size_t>(size_), block);
  std::vector<T> all(values.size() * static_cast<std::size_t>(size_));
  all_gather(name, values.data(), block, all.data(), bytes);
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    const std::span<const T> one(all.data() + rank * values.size(), values.size());
    rank == 0 ? start_sum<T>(values, one) : combine(values, one);
  }
}

void NcclCommunicator::reduce_scatter_sum(std::string_view name, std::span<const float> send,
                                          std::span<float> receive, Sizes block_elements) {
  LONGHAUL_ASSERT(block_elements.size() == static_cast<std::size_t>(size_) &&
                      block_elements[static_cast<std::size_t>(rank_)] ==
                          static_cast<std::int64_t>(receive.size()),
                  "reduce_scatter takes one size per rank and a result of this rank's size");
  const auto reduce = [&](const float* from, float* to) {
    run(name, false, [&] {
      check(ncclGroupStart(), name);
      for (int root = 0; root < size_; ++root) {
        const auto count = static_cast<std::size_t>(block_elements[static_cast<std::size_t>(root)]);
        if (count > 0) {
          check(ncclReduce(from, to, count, ncclFloat32, ncclSum, root, comm_, stream()), name);
        }
        from += count;
      }
      check(ncclGroupEnd(), name);
    });
  };
  if (!send.empty() && !is_on_device(send.data())) {
    through_device(name, send.data(), static_cast<std::int64_t>(send.size_bytes()), receive.data(),
                   static_cast<std::int64_t>(receive.size_bytes()),
                   [&](std::byte* from, std::byte* to) {
                     reduce(reinterpret_cast<float*>(from), reinterpret_cast<float*>(to));
                   });
  } else {
    reduce(send.data(), receive.data());
  }
}

void NcclCommunicator::broadcast(std::string_view name, void* data, std::int64_t bytes, int root) {
  LONGHAUL_ASSERT(root >= 0 && root < size_, "the root of a broadcast is a rank of the group");
  const auto send = [&](std::byte* memory) {
    run(name, false, [&] {
      check(ncclBroadcast(memory, memory, static_cast<std::size_t>(bytes), ncclUint8, root, comm_,
                          stream()),
            name);
    });
  };
  if (bytes == 0) {
    return;
  }
  if (is_on_device(data)) {
    send(static_cast<std::byte*>(data));
    return;
  }
  through_device(name, data, bytes, data, bytes, [&](std::byte* from, std::byte* to) {
    check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                               stream()),
               name);
    send(to);
  });
}

void NcclCommunicator::barrier(std::string_view name) {
  std::array<std::int64_t, 1> nothing{};
  all_reduce_sum(name, std::span<std::int64_t>(nothing));
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color) {
  // Also a barrier: nobody enters NCCL's own split, which has no deadline, before all are there.
  std::vector<std::int64_t> colors(static_cast<std::size_t>(size_));
  const std::int64_t mine = color;
  const std::vector<std::int64_t> bytes(colors.size(), sizeof(mine));
  all_gather("split", &mine, sizeof(mine), colors.data(), bytes);
  int rank = 0;
  int size = 0;
  for (int peer = 0; peer < size_; ++peer) {
    if (colors[static_cast<std::size_t>(peer)] == color) {
      rank += peer < rank_ ? 1 : 0;
      ++size;
    }
  }
  ncclComm_t comm = nullptr;
  check(ncclCommSplit(comm_, color, rank_, &comm, nullptr), "split");
  auto child = std::make_unique<NcclCommunicator>(watch_, comm, rank, size, false);
  child->set_step(step());
  child->set_deadline(deadline());
  return child;
}

void NcclCommunicator::abort(const std::string& reason) {
  const base::Problem problem{.where = operation_place(watch_->world_rank(), step(), "abort"),
                              .what = reason};
  if (watch_->observer() != nullptr) {
    watch_->observer()->rank_aborts(problem.line());
  }
  watch_->fail(problem);
  throw base::SystemError(problem);
}

/// A healthy process waits for the others; a failing one ends its communication at once.
NcclCommunicator::~NcclCommunicator() {
  if (std::uncaught_exceptions() > 0) {
    watch_->fail({.where = operation_place(watch_->world_rank(), step(), "end"),
                  .what = "the run has failed"});
  }
  try {
    if (is_world_ && !watch_->has_failed()) {
      barrier("end of the run");
    }
  } catch (const std::exception&) {
    // A peer is gone; its own report explains it, and the watch has ended the communicators.
  }
  if (!watch_->has_failed()) {
    watch_->remove(comm_);
    ncclCommDestroy(comm_);
  }
}

/// ncclCommInitRank waits for every rank without a deadline: a thread does it, so that a missing
/// rank ends the wait. On failure the thread is left behind; the process is about to end.
ncclComm_t connect(const NcclWorldRequest& request) {
  constexpr std::string_view kName = "NCCL start";
  ncclUniqueId id;
  std::memcpy(&id, request.unique_id, sizeof(id));
  const int device = c10::cuda::current_device();
  std::promise<std::pair<ncclResult_t, ncclComm_t>> promise;
  std::future<std::pair<ncclResult_t, ncclComm_t>> connected = promise.get_future();
  std::thread([promise = std::move(promise), id, device, rank = request.rank,
               ranks = request.ranks]() mutable {
    cudaSetDevice(device);
    ncclComm_t comm = nullptr;
    const ncclResult_t status = ncclCommInitRank(&comm, ranks, id, rank);
    promise.set_value({status, comm});
  }).detach();
  if (connected.wait_for(std::chrono::milliseconds(request.start_deadline_ms)) !=
      std::future_status::ready) {
    throw PeerError({.where = fmt::format("rank {}, {}", request.rank, kName),
                     .what = fmt::format("not all {} ranks came within {} s", request.ranks,
                                         request.start_deadline_ms / 1000)});
  }
  const auto [status, comm] = connected.get();
  check_nccl(status, request.rank, kName);
  return comm;
}

std::unique_ptr<Communicator> make_world(const NcclWorldRequest& request) {
  const ncclComm_t comm = connect(request);
  auto watch =
      std::make_shared<NcclWatch>(request.rank, c10::cuda::current_device(), request.observer);
  return std::make_unique<NcclCommunicator>(std::move(watch), comm, request.rank, request.ranks,
                                            true);
}

}  // namespace
}  // namespace longhaul::dist

// The two symbols of the shared object.
extern "C" {

__attribute__((visibility("default"))) int longhaul_nccl_unique_id(char* id, int capacity);
__attribute__((visibility("default"))) longhaul::dist::Communicator* longhaul_nccl_world(
    const longhaul::dist::NcclWorldRequest* request);

int longhaul_nccl_unique_id(char* id, int capacity) {
  ncclUniqueId made;
  longhaul::dist::check_nccl(ncclGetUniqueId(&made), 0, "NCCL start");
  LONGHAUL_ASSERT(capacity >= static_cast<int>(sizeof(made)), "the id fits its buffer");
  std::memcpy(id, &made, sizeof(made));
  return static_cast<int>(sizeof(made));
}

longhaul::dist::Communicator* longhaul_nccl_world(const longhaul::dist::NcclWorldRequest* request) {
  return longhaul::dist::make_world(*request).release();
}

}  // extern "C"
