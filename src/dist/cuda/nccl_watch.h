// The eye on what NCCL has been asked to do: operations run on the GPU long after the call has
// returned, so a thread of its own notices the one that does not end, ends them all, and keeps the
// line that says why.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dist/communicator.h"
#include "dist/operation_observer.h"

namespace longhaul::dist {

/// Fault of a CUDA call as a SystemError.
void check_cuda(cudaError_t status, std::string_view place);

class NcclWatch {
 public:
  /// `device` is this process's GPU; `observer` may be null.
  NcclWatch(int world_rank, int device, OperationObserver* observer);
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;
  ~NcclWatch();

  /// What an operation adds to when it has ended.
  struct Account {
    CommCounters counters;
  };
  /// One operation between its call and its end on the GPU.
  struct Pending {
    std::string name;
    std::int64_t step = 0;
    std::chrono::steady_clock::time_point called;
    std::chrono::milliseconds deadline{};
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    std::shared_ptr<Account> account;
    bool is_exchange = false;
  };

  /// Before the operation is enqueued: marks the stream. PeerError when communication has failed.
  Pending begins(std::string_view name, std::int64_t step, std::chrono::milliseconds deadline,
                 cudaStream_t stream);
  /// After it: from now on its end is waited for.
  void enqueued(Pending pending, cudaStream_t stream);
  /// Returns when everything called so far has ended. PeerError when it failed.
  void wait_for_all(std::string_view name, std::int64_t step);
  /// Books what has ended; cheap.
  void settle();
  /// Reads or changes an account while nothing is booked.
  template <typename Change>
  void change(Account& account, Change change) {
    const Lock lock(mutex_);
    change(account.counters);
  }

  /// Called, again and again, once communication has failed: ends what streams wait for. By the watch's thread or by
  /// the one that notices the failure; must not wait for the GPU nor call this object.
  void add_abort_action(const void* owner, std::function<void()> action);
  void remove_abort_action(const void* owner);

  void add(ncclComm_t comm);
  void remove(ncclComm_t comm);
  /// Ends all communication of this process; the first reason stays.
  void fail(const base::Problem& problem);
  [[nodiscard]] bool has_failed() const;
  [[nodiscard]] OperationObserver* observer() const { return observer_; }
  [[nodiscard]] int world_rank() const { return world_rank_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  void watch(const std::stop_token& stop);
  void settle(const Lock& held);
  void look(const Lock& held);
  void fail(const base::Problem& problem, const Lock& held);
  void end_waits(const Lock& held);
  void throw_if_failed(const Lock& held) const;
  cudaEvent_t new_event();

  const int world_rank_;
  const int device_;
  OperationObserver* const observer_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Pending> pending_;
  std::vector<cudaEvent_t> free_events_;
  std::vector<ncclComm_t> comms_;
  std::map<const void*, std::function<void()>> abort_actions_;
  std::optional<base::Problem> failure_;
  std::jthread thread_;
};

}  // namespace longhaul::dist
