#include "dist/cuda/nccl_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "dist/comm_error.h"

namespace longhaul::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{50};
/// A rank that waits for a small result looks again at once for so long, then sleeps in between.
constexpr std::chrono::milliseconds kEager{2};
constexpr std::chrono::microseconds kNap{50};

}  // namespace

void check_cuda(cudaError_t status, std::string_view place) {
  if (status != cudaSuccess) {
    throw base::SystemError(
        {.where = std::string(place), .what = fmt::format("CUDA: {}", cudaGetErrorString(status))});
  }
}

NcclWatch::NcclWatch(int world_rank, int device, OperationObserver* observer)
    : world_rank_(world_rank),
      device_(device),
      observer_(observer),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

NcclWatch::~NcclWatch() {
  thread_.request_stop();
  thread_.join();
  for (const Pending& pending : pending_) {
    free_events_.push_back(pending.begin);
    free_events_.push_back(pending.end);
  }
  for (const cudaEvent_t event : free_events_) {
    cudaEventDestroy(event);
  }
}

cudaEvent_t NcclWatch::new_event() {
  if (free_events_.empty()) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "communication");
    return event;
  }
  const cudaEvent_t event = free_events_.back();
  free_events_.pop_back();
  return event;
}

void NcclWatch::throw_if_failed(const Lock& /*held*/) const {
  if (failure_) {
    throw PeerError(*failure_);
  }
}

NcclWatch::Pending NcclWatch::begins(std::string_view name, std::int64_t step,
                                     std::chrono::milliseconds deadline, cudaStream_t stream) {
  Pending pending;
  {
    const Lock lock(mutex_);
    throw_if_failed(lock);
    pending.begin = new_event();
    pending.end = new_event();
  }
  pending.name = name;
  pending.step = step;
  pending.deadline = deadline;
  if (observer_ != nullptr) {
    observer_->operation_begins(name, step);
  }
  check_cuda(cudaEventRecord(pending.begin, stream), name);
  return pending;
}

void NcclWatch::enqueued(Pending pending, cudaStream_t stream) {
  check_cuda(cudaEventRecord(pending.end, stream), pending.name);
  pending.called = Clock::now();
  if (observer_ != nullptr) {
    observer_->operation_ends();
  }
  const Lock lock(mutex_);
  pending_.push_back(std::move(pending));
}

void NcclWatch::settle() {
  const Lock lock(mutex_);
  settle(lock);
}

void NcclWatch::settle(const Lock& /*held*/) {
  while (!pending_.empty() && cudaEventQuery(pending_.front().end) == cudaSuccess) {
    const Pending& done = pending_.front();
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, done.begin, done.end);
    CommCounters& counters = done.account->counters;
    counters.wait_s += milliseconds * 1e-3;
    if (done.is_exchange) {
      counters.exchange_s += milliseconds * 1e-3;
      ++counters.num_exchanges;
    }
    free_events_.push_back(done.begin);
    free_events_.push_back(done.end);
    pending_.pop_front();
  }
}

void NcclWatch::wait_for_all(std::string_view name, std::int64_t step) {
  if (observer_ != nullptr) {
    observer_->operation_begins(name, step);
  }
  const auto begin = Clock::now();
  while (true) {
    {
      const Lock lock(mutex_);
      settle(lock);
      throw_if_failed(lock);  // the page keeps saying where it happened
      if (pending_.empty()) {
        break;
      }
    }
    if (Clock::now() - begin > kEager) {
      std::this_thread::sleep_for(kNap);
    }
  }
  if (observer_ != nullptr) {
    observer_->operation_ends();
  }
}

void NcclWatch::add(ncclComm_t comm) {
  const Lock lock(mutex_);
  comms_.push_back(comm);
}

void NcclWatch::remove(ncclComm_t comm) {
  const Lock lock(mutex_);
  std::erase(comms_, comm);
}

void NcclWatch::add_abort_action(const void* owner, std::function<void()> action) {
  const Lock lock(mutex_);
  abort_actions_.emplace(owner, std::move(action));
}

void NcclWatch::remove_abort_action(const void* owner) {
  const Lock lock(mutex_);
  abort_actions_.erase(owner);
}

void NcclWatch::end_waits(const Lock& /*held*/) {
  for (const auto& [owner, action] : abort_actions_) {
    action();
  }
}

bool NcclWatch::has_failed() const {
  const Lock lock(mutex_);
  return failure_.has_value();
}

void NcclWatch::fail(const base::Problem& problem) {
  const Lock lock(mutex_);
  if (!failure_) {
    fail(problem, lock);
  }
}

/// What waits for a peer ends; its results are never used, because every next call throws.
void NcclWatch::fail(const base::Problem& problem, const Lock& held) {
  failure_ = problem;
  end_waits(held);
  for (const ncclComm_t comm : comms_) {
    ncclCommAbort(comm);
  }
  comms_.clear();
}

void NcclWatch::look(const Lock& held) {
  settle(held);
  if (failure_) {
    end_waits(held);  // a living peer may have written over the flags
    return;
  }
  Pending* first = pending_.empty() ? nullptr : &pending_.front();
  const auto place = [&] {
    return first == nullptr ? operation_place(world_rank_, 0, "communication")
                            : operation_place(world_rank_, first->step, first->name);
  };
  for (const ncclComm_t comm : comms_) {
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(comm, &state);
    if (state != ncclSuccess && state != ncclInProgress) {
      fail({.where = place(), .what = fmt::format("NCCL: {}", ncclGetErrorString(state))}, held);
      return;
    }
  }
  if (first == nullptr) {
    return;
  }
  if (cudaEventQuery(first->begin) != cudaSuccess) {
    first->called = Clock::now();  // still behind earlier work of this GPU
  } else if (Clock::now() - first->called > first->deadline) {
    fail({.where = place(),
          .what = fmt::format("not ended after {} s; another rank is late or gone",
                              first->deadline.count() / 1000)},
         held);
  }
}

void NcclWatch::watch(const std::stop_token& stop) {
  cudaSetDevice(device_);
  Lock lock(mutex_);
  while (!stop.stop_requested()) {
    look(lock);
    wake_.wait_for(lock, stop, kLook, [] { return false; });
  }
}

}  // namespace longhaul::dist
