// All-to-all of equal blocks between the GPUs of one host, NCCL's ways against one another: JSON lines.
//
//   nccl_all_to_all [RANKS]
//
// send_recv: grouped ncclSend and ncclRecv, the own block left out. all_to_all: ncclAlltoAll on plain memory. symmetric: the
// same on registered symmetric windows. copy_engine: that under NCCL_CTA_POLICY_ZERO, where copy engines move the bytes and no
// kernel does. Bytes are those that one rank sends to the others; a round is timed by events on every rank, the slowest counts.
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 20;
constexpr int kWarmUp = 5;

void check(cudaError_t status) {
  if (status != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(status));
  }
}

void check(ncclResult_t status) {
  if (status != ncclSuccess) {
    throw std::runtime_error(ncclGetErrorString(status));
  }
}

enum class Way { kSendRecv, kAllToAll, kSymmetric, kCopyEngine };

std::string name_of(Way way) {
  switch (way) {
    case Way::kSendRecv:
      return "send_recv";
    case Way::kAllToAll:
      return "all_to_all";
    case Way::kSymmetric:
      return "symmetric";
    case Way::kCopyEngine:
      return "copy_engine";
  }
  return "";
}

/// One rank's communicator and its two buffers of `bytes`.
class Rank {
 public:
  Rank(const ncclUniqueId& id, int rank, int ranks, Way way, std::size_t bytes)
      : way_(way), rank_(rank), ranks_(ranks), block_(bytes / static_cast<std::size_t>(ranks)) {
    check(cudaSetDevice(rank));
    check(cudaStreamCreate(&stream_));
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = way == Way::kCopyEngine ? NCCL_CTA_POLICY_ZERO : NCCL_CTA_POLICY_DEFAULT;
    check(ncclCommInitRankConfig(&comm_, ranks, id, rank, &config));
    const bool registers = way == Way::kSymmetric || way == Way::kCopyEngine;
    for (void** buffer : {&send_, &receive_}) {
      check(ncclMemAlloc(buffer, bytes));
      check(cudaMemset(*buffer, rank + 1, bytes));
      if (registers) {
        ncclWindow_t window = nullptr;
        check(ncclCommWindowRegister(comm_, *buffer, bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
        windows_.push_back(window);
      }
    }
    check(cudaDeviceSynchronize());
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    for (ncclWindow_t window : windows_) {
      ncclCommWindowDeregister(comm_, window);
    }
    ncclMemFree(send_);
    ncclMemFree(receive_);
    ncclCommDestroy(comm_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }

  /// Seconds of one all-to-all.
  double round() {
    check(cudaEventRecord(begin_, stream_));
    if (way_ == Way::kSendRecv) {
      send_and_receive();
    } else {
      check(ncclAlltoAll(send_, receive_, block_, ncclChar, comm_, stream_));
    }
    check(cudaEventRecord(end_, stream_));
    check(cudaStreamSynchronize(stream_));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) * 1e-3;
  }

  /// Every block that came is its sender's.
  [[nodiscard]] bool is_right() const {
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_ && way_ == Way::kSendRecv) {
        continue;
      }
      std::vector<unsigned char> block(block_);
      check(cudaMemcpy(block.data(), block_of(receive_, peer), block_, cudaMemcpyDeviceToHost));
      if (std::any_of(block.begin(), block.end(), [&](int byte) { return byte != peer + 1; })) {
        return false;
      }
    }
    return true;
  }

 private:
  [[nodiscard]] char* block_of(void* buffer, int peer) const {
    return static_cast<char*>(buffer) + static_cast<std::size_t>(peer) * block_;
  }
  void send_and_receive() {
    check(ncclGroupStart());
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer != rank_) {
        check(ncclSend(block_of(send_, peer), block_, ncclChar, peer, comm_, stream_));
        check(ncclRecv(block_of(receive_, peer), block_, ncclChar, peer, comm_, stream_));
      }
    }
    check(ncclGroupEnd());
  }

  Way way_;
  int rank_;
  int ranks_;
  std::size_t block_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  void* send_ = nullptr;
  void* receive_ = nullptr;
  std::vector<ncclWindow_t> windows_;
};

void measure(Way way, int ranks, std::size_t bytes) {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  std::vector<std::vector<double>> seconds(static_cast<std::size_t>(ranks));
  std::vector<char> right(static_cast<std::size_t>(ranks), 0);
  std::barrier together(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Rank mine(id, rank, ranks, way, bytes);
        for (int i = 0; i < kWarmUp + kRounds; ++i) {
          together.arrive_and_wait();
          seconds[static_cast<std::size_t>(rank)].push_back(mine.round());
        }
        right[static_cast<std::size_t>(rank)] = mine.is_right() ? 1 : 0;
      } catch (const std::exception& error) {
        fmt::print(stderr, "{} on GPU {}: {}\n", name_of(way), rank, error.what());
        std::_Exit(1);  // the other ranks wait for this one
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<double> slowest;
  for (int i = kWarmUp; i < kWarmUp + kRounds; ++i) {
    double most = 0;
    for (const auto& of_rank : seconds) {
      most = std::max(most, of_rank[static_cast<std::size_t>(i)]);
    }
    slowest.push_back(most);
  }
  std::sort(slowest.begin(), slowest.end());
  const double median = slowest[slowest.size() / 2];
  const auto sent = static_cast<double>(bytes / static_cast<std::size_t>(ranks)) * (ranks - 1);
  fmt::print(
      "{{\"way\":\"{}\",\"ranks\":{},\"bytes\":{:.0f},\"us\":{:.1f},\"gb_per_s\":{:.1f},\"right\":{"
      "}}}\n",
      name_of(way), ranks, sent, median * 1e6, sent / median * 1e-9,
      std::count(right.begin(), right.end(), 1) == ranks);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  constexpr std::size_t kMega = 1024 * 1024;
  if (ranks < 2) {
    fmt::print(stderr, "an all-to-all needs two ranks\n");
    return 2;
  }
  try {
    for (const Way way : {Way::kSendRecv, Way::kAllToAll, Way::kSymmetric, Way::kCopyEngine}) {
      for (const std::size_t mega : {2, 8, 32, 128, 512}) {
        measure(way, ranks, mega * kMega);
      }
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
