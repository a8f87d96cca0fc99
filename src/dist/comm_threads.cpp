// Every collective is: publish the arguments, meet, read the peers' memory, meet again. The second
// meeting keeps the arguments alive until the last reader is done. One mutex per job; ranks are few
// and calls are coarse.
#include "dist/comm_threads.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dist/comm_error.h"
#include "dist/rank_order.h"

namespace longhaul::dist {
namespace {

using Clock = std::chrono::steady_clock;

/// State of all ranks of one run_ranks call.
struct Job {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> has_left;  // by world rank: its function returned or threw
  std::exception_ptr first_failure;
  std::optional<base::Problem> failure;  // what the other ranks are told

  /// Remembers the first failure only and wakes everybody. Caller holds the mutex.
  void fail(const base::Problem& problem, std::exception_ptr exception) {
    if (!failure) {
      failure = problem;
      first_failure = std::move(exception);
    }
    changed.notify_all();
  }
};

struct Group;

/// One rank's arguments, readable by its peers between the two meetings.
struct Call {
  std::string_view name;
  const std::byte* data = nullptr;
  std::span<const std::int64_t> block_bytes{};  // all_to_all: per destination; otherwise unused
  std::int64_t bytes = 0;
  int number = 0;                    // root of a broadcast, color of a split
  std::shared_ptr<Group> created{};  // split: set by the first rank of a color
};

/// Ranks that call collectives together.
struct Group {
  std::shared_ptr<Job> job;
  std::vector<int> world_ranks;
  std::vector<Call*> calls;
  std::vector<bool> is_here;
  std::uint64_t meeting = 0;
  std::size_t num_here = 0;

  Group(std::shared_ptr<Job> owner, std::vector<int> ranks)
      : job(std::move(owner)),
        world_ranks(std::move(ranks)),
        calls(world_ranks.size()),
        is_here(world_ranks.size()) {}
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(group_->world_ranks.size()); }

  void all_to_all(std::string_view name, const void* send, std::span<const std::int64_t> send_bytes,
                  void* receive, std::span<const std::int64_t> receive_bytes) override;
  void all_gather(std::string_view name, const void* send, std::int64_t send_bytes, void* receive,
                  std::span<const std::int64_t> receive_bytes) override;
  void all_reduce_sum(std::string_view name, std::span<float> values) override {
    reduce_in_place(name, values, add_to_sum<float>);
  }
  void all_reduce_sum(std::string_view name, std::span<double> values) override {
    reduce_in_place(name, values, add_to_sum<double>);
  }
  void all_reduce_sum(std::string_view name, std::span<std::int64_t> values) override {
    reduce_in_place(name, values, add_to_sum<std::int64_t>);
  }
  void all_reduce_max(std::string_view name, std::span<double> values) override {
    reduce_in_place(name, values, take_maximum<double>);
  }
  void reduce_scatter_sum(std::string_view name, std::span<const float> send,
                          std::span<float> receive,
                          std::span<const std::int64_t> block_elements) override;
  void broadcast(std::string_view name, void* data, std::int64_t bytes, int root) override;
  void barrier(std::string_view name) override;
  std::unique_ptr<Communicator> split(int color) override;
  std::unique_ptr<PeerMemory> make_peer_memory(std::int64_t bytes) override {
    return make_thread_peer_memory(*this, counters_, bytes);
  }
  void abort(const std::string& reason) override;

 private:
  /// Adds the time spent inside a collective to the counters.
  class Timed {
   public:
    explicit Timed(double& seconds) : seconds_(seconds) {}
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
    ~Timed() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

   private:
    double& seconds_;
    Clock::time_point start_ = Clock::now();
  };

  template <typename Body>
  void together(Call& call, const Body& body);
  void meet_to_start(Call& call);
  void meet_to_end();
  [[nodiscard]] bool arrive();
  void wait_for_peers(std::unique_lock<std::mutex>& lock, std::string_view name);
  void check_same_name();
  [[noreturn]] void raise_late(std::string_view name);
  [[nodiscard]] const Call& peer(int index) const {
    return *group_->calls[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] int world_rank() const {
    return group_->world_ranks[static_cast<std::size_t>(rank_)];
  }

  template <typename T>
  void reduce_in_place(std::string_view name, std::span<T> values,
                       void (*combine)(std::span<T>, std::span<const T>));

  std::shared_ptr<Group> group_;
  int rank_;
};

// --- meetings
// -----------------------------------------------------------------------------------------------

/// Throws the peers' view of a failure.
[[noreturn]] void raise_peer_failure(const base::Problem& problem) { throw PeerError(problem); }

/// One collective: `body` reads the peers' calls and memory, all of which stay valid until the last
/// body is done.
template <typename Body>
void ThreadCommunicator::together(Call& call, const Body& body) {
  const Timed wait(counters_.wait_s);
  meet_to_start(call);
  std::exception_ptr failure;
  try {
    body();
  } catch (...) {
    failure = std::current_exception();
  }
  meet_to_end();
  if (failure) {
    std::rethrow_exception(failure);
  }
}

/// Counts this rank in; true for the last one, which opens the next meeting. Caller holds the
/// mutex.
bool ThreadCommunicator::arrive() {
  group_->is_here[static_cast<std::size_t>(rank_)] = true;
  if (++group_->num_here < group_->world_ranks.size()) {
    return false;
  }
  group_->num_here = 0;
  group_->is_here.assign(group_->is_here.size(), false);
  ++group_->meeting;
  group_->job->changed.notify_all();
  return true;
}

void ThreadCommunicator::meet_to_start(Call& call) {
  Job& job = *group_->job;
  std::unique_lock lock(job.mutex);
  if (job.failure) {
    raise_peer_failure(*job.failure);
  }
  group_->calls[static_cast<std::size_t>(rank_)] = &call;
  if (group_->num_here + 1 == group_->world_ranks.size()) {
    check_same_name();
  }
  if (!arrive()) {
    wait_for_peers(lock, call.name);
  }
}

/// Bodies never block, so this meeting always completes; it must, because peers read this rank's
/// memory until then.
void ThreadCommunicator::meet_to_end() {
  std::unique_lock lock(group_->job->mutex);
  const std::uint64_t meeting = group_->meeting;
  if (!arrive()) {
    group_->job->changed.wait(lock, [&] { return group_->meeting != meeting; });
  }
}

void ThreadCommunicator::wait_for_peers(std::unique_lock<std::mutex>& lock, std::string_view name) {
  Job& job = *group_->job;
  const std::uint64_t meeting = group_->meeting;
  const auto until = Clock::now() + deadline();
  while (group_->meeting == meeting) {
    if (job.failure) {
      raise_peer_failure(*job.failure);
    }
    for (std::size_t i = 0; i < group_->world_ranks.size(); ++i) {
      const int other = group_->world_ranks[i];
      if (!group_->is_here[i] && job.has_left[static_cast<std::size_t>(other)]) {
        const base::Problem problem{
            .where = operation_place(other, step(), name),
            .what =
                fmt::format("ended before this operation, which rank {} waits in", world_rank())};
        job.fail(problem, std::make_exception_ptr(PeerError(problem)));
        raise_peer_failure(problem);
      }
    }
    if (job.changed.wait_until(lock, until) == std::cv_status::timeout &&
        group_->meeting == meeting && !job.failure) {
      raise_late(name);
    }
  }
}

void ThreadCommunicator::raise_late(std::string_view name) {
  std::size_t late = 0;
  while (group_->is_here[late]) {
    ++late;
  }
  const base::Problem problem{
      .where = operation_place(group_->world_ranks[late], step(), name),
      .what = fmt::format("did not arrive within {:.3g} s; rank {} gave up waiting",
                          std::chrono::duration<double>(deadline()).count(), world_rank())};
  group_->job->fail(problem, std::make_exception_ptr(PeerError(problem)));
  raise_peer_failure(problem);
}

void ThreadCommunicator::check_same_name() {
  for (int i = 1; i < size(); ++i) {
    if (peer(i).name != peer(0).name) {
      const base::Problem problem{
          .where = operation_place(group_->world_ranks[static_cast<std::size_t>(i)], step(),
                                   peer(i).name),
          .what = fmt::format("rank {} is in another operation, '{}'", group_->world_ranks[0],
                              peer(0).name)};
      group_->job->fail(problem, std::make_exception_ptr(base::InternalError(problem)));
      throw base::InternalError(problem);
    }
  }
}

// --- operations
// ---------------------------------------------------------------------------------------------

void copy_block(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

/// Bytes before block `index`.
std::int64_t offset_of(std::span<const std::int64_t> blocks, int index) {
  return std::accumulate(blocks.begin(), blocks.begin() + index, std::int64_t{0});
}

void check_sizes(std::string_view name, int from, std::int64_t sent, std::int64_t expected) {
  LONGHAUL_ASSERT(sent == expected, fmt::format("{}: rank {} sends {} bytes where {} are expected",
                                                name, from, sent, expected));
}

void ThreadCommunicator::all_to_all(std::string_view name, const void* send,
                                    std::span<const std::int64_t> send_bytes, void* receive,
                                    std::span<const std::int64_t> receive_bytes) {
  const auto ranks = static_cast<std::size_t>(size());
  LONGHAUL_ASSERT(send_bytes.size() == ranks && receive_bytes.size() == ranks,
                  "all_to_all takes one size per rank");
  const Timed exchange(counters_.exchange_s);
  Call call{.name = name, .data = static_cast<const std::byte*>(send), .block_bytes = send_bytes};
  together(call, [&] {
    auto* to = static_cast<std::byte*>(receive);
    for (int from = 0; from < size(); ++from) {
      const Call& sender = peer(from);
      const std::int64_t bytes = sender.block_bytes[static_cast<std::size_t>(rank_)];
      const std::int64_t expected = receive_bytes[static_cast<std::size_t>(from)];
      const bool is_left_alone = from == rank_ && (bytes == 0 || expected == 0);
      if (!is_left_alone) {
        check_sizes(name, from, bytes, expected);
        copy_block(to, sender.data + offset_of(sender.block_bytes, rank_), bytes);
      }
      to += expected;
    }
  });
  counters_.exchange_bytes +=
      offset_of(send_bytes, size()) - send_bytes[static_cast<std::size_t>(rank_)];
  ++counters_.num_exchanges;
}

void ThreadCommunicator::all_gather(std::string_view name, const void* send,
                                    std::int64_t send_bytes, void* receive,
                                    std::span<const std::int64_t> receive_bytes) {
  LONGHAUL_ASSERT(receive_bytes.size() == static_cast<std::size_t>(size()),
                  "all_gather takes one size per rank");
  Call call{.name = name, .data = static_cast<const std::byte*>(send), .bytes = send_bytes};
  together(call, [&] {
    auto* to = static_cast<std::byte*>(receive);
    for (int from = 0; from < size(); ++from) {
      check_sizes(name, from, peer(from).bytes, receive_bytes[static_cast<std::size_t>(from)]);
      copy_block(to, peer(from).data, peer(from).bytes);
      to += peer(from).bytes;
    }
  });
}

template <typename T>
void ThreadCommunicator::reduce_in_place(std::string_view name, std::span<T> values,
                                         void (*combine)(std::span<T>, std::span<const T>)) {
  Call call{.name = name,
            .data = reinterpret_cast<const std::byte*>(values.data()),
            .bytes = static_cast<std::int64_t>(values.size_bytes())};
  std::vector<T> total(values.size());
  together(call, [&] {
    for (int from = 0; from < size(); ++from) {
      check_sizes(name, from, peer(from).bytes, call.bytes);
      const std::span<const T> block(reinterpret_cast<const T*>(peer(from).data), values.size());
      if (from == 0) {
        start_sum<T>(total, block);
      } else {
        combine(total, block);
      }
    }
  });
  std::copy(total.begin(), total.end(), values.begin());
}

void ThreadCommunicator::reduce_scatter_sum(std::string_view name, std::span<const float> send,
                                            std::span<float> receive,
                                            std::span<const std::int64_t> block_elements) {
  LONGHAUL_ASSERT(block_elements.size() == static_cast<std::size_t>(size()) &&
                      block_elements[static_cast<std::size_t>(rank_)] ==
                          static_cast<std::int64_t>(receive.size()),
                  "reduce_scatter takes one size per rank and a result of this rank's size");
  Call call{.name = name,
            .data = reinterpret_cast<const std::byte*>(send.data()),
            .bytes = static_cast<std::int64_t>(send.size_bytes())};
  together(call, [&] {
    for (int from = 0; from < size(); ++from) {
      check_sizes(name, from, peer(from).bytes, call.bytes);
      const std::span<const float> block(
          reinterpret_cast<const float*>(peer(from).data) + offset_of(block_elements, rank_),
          receive.size());
      if (from == 0) {
        start_sum<float>(receive, block);
      } else {
        add_to_sum<float>(receive, block);
      }
    }
  });
}

void ThreadCommunicator::broadcast(std::string_view name, void* data, std::int64_t bytes,
                                   int root) {
  LONGHAUL_ASSERT(root >= 0 && root < size(), "the root of a broadcast is a rank of the group");
  Call call{
      .name = name, .data = static_cast<const std::byte*>(data), .bytes = bytes, .number = root};
  together(call, [&] {
    check_sizes(name, root, peer(root).bytes, bytes);
    LONGHAUL_ASSERT(peer(root).number == root, "ranks agree on the root of a broadcast");
    if (rank_ != root) {
      copy_block(static_cast<std::byte*>(data), peer(root).data, bytes);
    }
  });
}

void ThreadCommunicator::barrier(std::string_view name) {
  Call call{.name = name};
  together(call, [] {});
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int color) {
  std::vector<int> members;
  int my_index = 0;
  int leader = -1;
  Call announced{.name = "split", .number = color};
  together(announced, [&] {
    for (int i = 0; i < size(); ++i) {
      if (peer(i).number == color) {
        leader = leader < 0 ? i : leader;
        my_index = i == rank_ ? static_cast<int>(members.size()) : my_index;
        members.push_back(group_->world_ranks[static_cast<std::size_t>(i)]);
      }
    }
  });
  Call created{.name = "split"};
  if (leader == rank_) {
    created.created = std::make_shared<Group>(group_->job, members);
  }
  std::unique_ptr<Communicator> child;
  together(created,
           [&] { child = std::make_unique<ThreadCommunicator>(peer(leader).created, my_index); });
  child->set_step(step());
  child->set_deadline(deadline());
  return child;
}

void ThreadCommunicator::abort(const std::string& reason) {
  const base::Problem problem{.where = operation_place(world_rank(), step(), "abort"),
                              .what = reason};
  {
    const std::lock_guard lock(group_->job->mutex);
    group_->job->fail(problem, std::make_exception_ptr(base::SystemError(problem)));
  }
  throw base::SystemError(problem);
}

/// Body of one thread: whatever leaves `rank_main` becomes the job's failure.
void run_one(Job& job, Communicator& comm, int rank,
             const std::function<void(Communicator&)>& rank_main) {
  std::exception_ptr failure;
  std::string message;
  try {
    rank_main(comm);
  } catch (const std::exception& error) {
    failure = std::current_exception();
    message = error.what();
  } catch (...) {
    failure = std::current_exception();
    message = "unknown exception";
  }
  const std::lock_guard lock(job.mutex);
  job.has_left[static_cast<std::size_t>(rank)] = true;
  if (failure) {
    job.fail({.where = fmt::format("rank {}, step {}", rank, comm.step()), .what = message},
             failure);
  }
  job.changed.notify_all();
}

}  // namespace

void run_ranks(int ranks, const std::function<void(Communicator&)>& rank_main,
               std::chrono::milliseconds deadline) {
  LONGHAUL_ASSERT(ranks >= 1, "at least one rank");
  const auto job = std::make_shared<Job>();
  job->has_left.assign(static_cast<std::size_t>(ranks), false);
  std::vector<int> all(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    all[static_cast<std::size_t>(rank)] = rank;
  }
  const auto world = std::make_shared<Group>(job, all);
  {
    std::vector<std::jthread> threads;
    threads.reserve(all.size());
    for (const int rank : all) {
      threads.emplace_back([&, rank] {
        ThreadCommunicator comm(world, rank);
        comm.set_deadline(deadline);
        run_one(*job, comm, rank, rank_main);
      });
    }
  }
  if (job->first_failure) {
    std::rethrow_exception(job->first_failure);
  }
}

}  // namespace longhaul::dist
