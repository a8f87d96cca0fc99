// Runs a function on many items with several threads and hands the results to one consumer in item
// order, with a bounded number of results waiting. The outcome, errors included, does not depend on
// the number of threads.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace longhaul::data {

/// `work(i)` for i in [0, count) on `threads` threads; `consume(i, result)` in rising i on the
/// calling thread until it returns false. An exception of `work(i)` is thrown when i's turn comes.
template <typename Result>
class OrderedWorkers {
 public:
  using Work = std::function<Result(std::int64_t)>;
  using Consume = std::function<bool(std::int64_t, Result&&)>;

  static void run(std::int64_t count, std::int64_t threads, const Work& work,
                  const Consume& consume) {
    if (threads <= 1 || count <= 1) {
      for (std::int64_t i = 0; i < count; ++i) {
        if (!consume(i, work(i))) {
          return;
        }
      }
      return;
    }
    OrderedWorkers(count, std::min(threads, count), work).drain(consume);
  }

  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;
  ~OrderedWorkers() {
    stop();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

 private:
  struct Slot {
    std::optional<Result> result;
    std::exception_ptr error;
    bool ready = false;
  };
  // Enough to keep every thread busy while the consumer waits for a slow item.
  static constexpr std::int64_t kWaitingPerThread = 16;

  OrderedWorkers(std::int64_t count, std::int64_t threads, const Work& work)
      : count_(count), work_(work), slots_(static_cast<std::size_t>(threads * kWaitingPerThread)) {
    for (std::int64_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { produce(); });
    }
  }

  Slot& slot(std::int64_t item) { return slots_[static_cast<std::size_t>(item) % slots_.size()]; }

  void produce() {
    while (true) {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] {
        return stopped_ || next_ == count_ ||
               next_ < consumed_ + static_cast<std::int64_t>(slots_.size());
      });
      if (stopped_ || next_ == count_) {
        return;
      }
      const std::int64_t item = next_++;
      lock.unlock();
      Slot done;
      try {
        done.result.emplace(work_(item));
      } catch (...) {
        done.error = std::current_exception();
      }
      done.ready = true;
      lock.lock();
      slot(item) = std::move(done);
      lock.unlock();
      ready_.notify_one();
    }
  }

  void drain(const Consume& consume) {
    for (std::int64_t item = 0; item < count_; ++item) {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this, item] { return slot(item).ready; });
      Slot done = std::move(slot(item));
      slot(item) = Slot{};
      ++consumed_;
      lock.unlock();
      room_.notify_all();
      if (done.error != nullptr) {
        std::rethrow_exception(done.error);
      }
      if (!consume(item, *std::move(done.result))) {
        return;
      }
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
  }

  std::int64_t count_;
  const Work& work_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable ready_;
  std::vector<Slot> slots_;
  std::int64_t next_ = 0;
  std::int64_t consumed_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul::data
