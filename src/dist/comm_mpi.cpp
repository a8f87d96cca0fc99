// CPU ranks as processes, over MPI, without any collective of MPI's own: those cannot be given a
// deadline, and their sums have no fixed order. Groups are lists of world ranks with a tag range
// each, so making one needs no blocking call.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "dist/comm_error.h"
#include "dist/communicator.h"
#include "dist/mpi_library.h"
#include "dist/mpi_transfer.h"
#include "dist/process_copy.h"
#include "dist/rank_order.h"

namespace longhaul::dist {
namespace {

using Clock = std::chrono::steady_clock;

/// Elements of a sum handled at a time; bounds the scratch memory.
constexpr std::int64_t kReduceElements = std::int64_t{1} << 20;
/// Sums up to this many bytes take one round: everybody's values to everybody.
constexpr std::int64_t kSmallSumBytes = 4096;
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiWorld> world, std::vector<int> members, int context)
      : transfer_(std::move(world), std::move(members), context), context_(context) {
    const std::vector<int>& ranks = transfer_.members();
    rank_ = static_cast<int>(std::find(ranks.begin(), ranks.end(), transfer_.world().rank) -
                             ranks.begin());
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;
  ~MpiCommunicator() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(num_ranks()); }

  void all_to_all(std::string_view name, const void* send, std::span<const std::int64_t> send_bytes,
                  void* receive, std::span<const std::int64_t> receive_bytes) override;
  void all_gather(std::string_view name, const void* send, std::int64_t send_bytes, void* receive,
                  std::span<const std::int64_t> receive_bytes) override;
  void all_reduce_sum(std::string_view name, std::span<float> values) override {
    all_reduce(name, values, add_to_sum<float>);
  }
  void all_reduce_sum(std::string_view name, std::span<double> values) override {
    all_reduce(name, values, add_to_sum<double>);
  }
  void all_reduce_sum(std::string_view name, std::span<std::int64_t> values) override {
    all_reduce(name, values, add_to_sum<std::int64_t>);
  }
  void all_reduce_max(std::string_view name, std::span<double> values) override {
    all_reduce(name, values, take_maximum<double>);
  }
  void reduce_scatter_sum(std::string_view name, std::span<const float> send,
                          std::span<float> receive,
                          std::span<const std::int64_t> block_elements) override;
  void broadcast(std::string_view name, void* data, std::int64_t bytes, int root) override;
  void barrier(std::string_view name) override;
  std::unique_ptr<Communicator> split(int color) override;
  void abort(const std::string& reason) override;

 private:
  /// Bookkeeping of one operation: tells the observer, counts the time.
  class Operation {
   public:
    Operation(MpiCommunicator& comm, std::string_view name) : comm_(comm) {
      if (comm_.world().has_failed) {
        throw base::SystemError({.where = comm_.place(name),
                                 .what = "communication has already failed in this process"});
      }
      if (comm_.world().observer != nullptr) {
        comm_.world().observer->operation_begins(name, comm_.step());
      }
    }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    ~Operation() {
      comm_.counters_.wait_s += seconds();
      // After a failure the page keeps saying where it happened.
      if (comm_.world().observer != nullptr && !comm_.world().has_failed) {
        comm_.world().observer->operation_ends();
      }
    }
    [[nodiscard]] double seconds() const {
      return std::chrono::duration<double>(Clock::now() - start_).count();
    }

   private:
    MpiCommunicator& comm_;
    Clock::time_point start_ = Clock::now();
  };

  void transfer(std::string_view name, std::span<const Block> sends,
                std::span<const Block> receives) {
    transfer_.run({.name = name, .step = step(), .deadline = deadline()}, sends, receives);
  }
  [[nodiscard]] std::string place(std::string_view name) const {
    return operation_place(transfer_.world().rank, step(), name);
  }
  [[nodiscard]] MpiWorld& world() const { return transfer_.world(); }
  [[nodiscard]] std::size_t num_ranks() const { return transfer_.members().size(); }
  std::byte* scratch(std::int64_t bytes);
  void gather_blocks(std::string_view name, const std::byte* mine, std::byte* all,
                     std::span<const std::int64_t> bytes);

  template <typename T>
  using Combine = void (*)(std::span<T>, std::span<const T>);
  template <typename T>
  void all_reduce(std::string_view name, std::span<T> values, Combine<T> combine);
  template <typename T>
  void sum_small(std::string_view name, std::span<T> values, Combine<T> combine);
  template <typename T>
  void sum_large(std::string_view name, std::span<T> values, Combine<T> combine);

  MpiTransfer transfer_;
  int context_;
  int rank_ = 0;
  std::vector<std::byte> scratch_;
};

// --- operations
// ---------------------------------------------------------------------------------------------

void copy_block(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
  }
}

/// MPI takes sent data as non-const in our Block; it only reads it.
std::byte* sendable(const void* data) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(data));
}

std::byte* MpiCommunicator::scratch(std::int64_t bytes) {
  if (scratch_.size() < static_cast<std::size_t>(bytes)) {
    scratch_.resize(static_cast<std::size_t>(bytes));
  }
  return scratch_.data();
}

void MpiCommunicator::all_to_all(std::string_view name, const void* send,
                                 std::span<const std::int64_t> send_bytes, void* receive,
                                 std::span<const std::int64_t> receive_bytes) {
  LONGHAUL_ASSERT(send_bytes.size() == num_ranks() && receive_bytes.size() == num_ranks(),
                  "all_to_all takes one size per rank");
  const auto mine = static_cast<std::size_t>(rank_);
  const std::int64_t own_bytes = own_block_bytes(send_bytes[mine], receive_bytes[mine]);
  const Operation operation(*this, name);
  std::vector<Block> sends;
  std::vector<Block> receives;
  std::byte* from = sendable(send);
  auto* to = static_cast<std::byte*>(receive);
  for (int peer = 0; peer < size(); ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    if (peer == rank_) {
      copy_block(to, from, own_bytes);
    } else {
      sends.push_back({.peer = peer, .data = from, .bytes = send_bytes[index]});
      receives.push_back({.peer = peer, .data = to, .bytes = receive_bytes[index]});
      counters_.exchange_bytes += send_bytes[index];
    }
    from += send_bytes[index];
    to += receive_bytes[index];
  }
  // Everybody starts with its right neighbour, so that no rank is everybody's first target.
  const auto next = std::find_if(sends.begin(), sends.end(),
                                 [&](const Block& block) { return block.peer > rank_; });
  std::rotate(sends.begin(), next, sends.end());
  transfer(name, sends, receives);
  counters_.exchange_s += operation.seconds();
  ++counters_.num_exchanges;
}

/// The all-gather itself, without bookkeeping; `mine` may lie in its place inside `all`.
void MpiCommunicator::gather_blocks(std::string_view name, const std::byte* mine, std::byte* all,
                                    std::span<const std::int64_t> bytes) {
  std::vector<Block> sends;
  std::vector<Block> receives;
  std::byte* to = all;
  for (int peer = 0; peer < size(); ++peer) {
    const std::int64_t block = bytes[static_cast<std::size_t>(peer)];
    if (peer == rank_) {
      copy_block(to, mine, block);
    } else {
      sends.push_back(
          {.peer = peer, .data = sendable(mine), .bytes = bytes[static_cast<std::size_t>(rank_)]});
      receives.push_back({.peer = peer, .data = to, .bytes = block});
    }
    to += block;
  }
  transfer(name, sends, receives);
}

void MpiCommunicator::all_gather(std::string_view name, const void* send, std::int64_t send_bytes,
                                 void* receive, std::span<const std::int64_t> receive_bytes) {
  LONGHAUL_ASSERT(receive_bytes.size() == num_ranks() &&
                      receive_bytes[static_cast<std::size_t>(rank_)] == send_bytes,
                  "all_gather takes one size per rank");
  const Operation operation(*this, name);
  gather_blocks(name, static_cast<const std::byte*>(send), static_cast<std::byte*>(receive),
                receive_bytes);
}

template <typename T>
void MpiCommunicator::all_reduce(std::string_view name, std::span<T> values, Combine<T> combine) {
  const Operation operation(*this, name);
  if (static_cast<std::int64_t>(values.size_bytes()) <= kSmallSumBytes) {
    sum_small(name, values, combine);
    return;
  }
  const auto window = static_cast<std::size_t>(kReduceElements);
  for (std::size_t begin = 0; begin < values.size(); begin += window) {
    sum_large(name, values.subspan(begin, std::min(window, values.size() - begin)), combine);
  }
}

/// Everybody gets everything and adds it up.
template <typename T>
void MpiCommunicator::sum_small(std::string_view name, std::span<T> values, Combine<T> combine) {
  const auto block = static_cast<std::int64_t>(values.size_bytes());
  const std::vector<std::int64_t> bytes(num_ranks(), block);
  std::byte* all = scratch(block * size());
  gather_blocks(name, reinterpret_cast<const std::byte*>(values.data()), all, bytes);
  for (std::size_t rank = 0; rank < num_ranks(); ++rank) {
    const std::span<const T> one(reinterpret_cast<const T*>(all) + rank * values.size(),
                                 values.size());
    if (rank == 0) {
      start_sum<T>(values, one);
    } else {
      combine(values, one);
    }
  }
}

/// Each rank adds up one part of the values and hands the result to all.
template <typename T>
void MpiCommunicator::sum_large(std::string_view name, std::span<T> values, Combine<T> combine) {
  const auto ranks = static_cast<std::int64_t>(num_ranks());
  const auto count = static_cast<std::int64_t>(values.size());
  const auto begin_of = [&](std::int64_t rank) { return count * rank / ranks; };
  const std::int64_t my_begin = begin_of(rank_);
  const std::int64_t my_count = begin_of(rank_ + 1) - my_begin;
  const auto my_bytes = my_count * static_cast<std::int64_t>(sizeof(T));
  std::byte* parts = scratch(my_bytes * ranks);
  std::vector<Block> sends;
  std::vector<Block> receives;
  std::vector<std::int64_t> part_bytes;
  for (int peer = 0; peer < size(); ++peer) {
    const std::int64_t begin = begin_of(peer);
    part_bytes.push_back((begin_of(peer + 1) - begin) * static_cast<std::int64_t>(sizeof(T)));
    if (peer != rank_) {
      sends.push_back(
          {.peer = peer, .data = sendable(values.data() + begin), .bytes = part_bytes.back()});
      receives.push_back({.peer = peer, .data = parts + peer * my_bytes, .bytes = my_bytes});
    }
  }
  copy_block(parts + rank_ * my_bytes, sendable(values.data() + my_begin), my_bytes);
  transfer(name, sends, receives);
  const std::span<T> mine =
      values.subspan(static_cast<std::size_t>(my_begin), static_cast<std::size_t>(my_count));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::span<const T> one(reinterpret_cast<const T*>(parts + rank * my_bytes), mine.size());
    if (rank == 0) {
      start_sum<T>(mine, one);
    } else {
      combine(mine, one);
    }
  }
  gather_blocks(name, reinterpret_cast<const std::byte*>(mine.data()),
                reinterpret_cast<std::byte*>(values.data()), part_bytes);
}

void MpiCommunicator::reduce_scatter_sum(std::string_view name, std::span<const float> send,
                                         std::span<float> receive,
                                         std::span<const std::int64_t> block_elements) {
  const auto my_elements = static_cast<std::int64_t>(receive.size());
  LONGHAUL_ASSERT(block_elements.size() == num_ranks() &&
                      block_elements[static_cast<std::size_t>(rank_)] == my_elements,
                  "reduce_scatter takes one size per rank and a result of this rank's size");
  const Operation operation(*this, name);
  const std::int64_t window = std::max<std::int64_t>(1, kReduceElements / size());
  const std::int64_t largest = *std::max_element(block_elements.begin(), block_elements.end());
  constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
  for (std::int64_t begin = 0; begin < largest; begin += window) {
    const auto piece_of = [&](std::int64_t elements) {
      return std::clamp<std::int64_t>(elements - begin, 0, window);
    };
    const std::int64_t my_piece = piece_of(my_elements);
    auto* parts = reinterpret_cast<float*>(scratch(my_piece * kFloatBytes * size()));
    std::vector<Block> sends;
    std::vector<Block> receives;
    std::int64_t offset = begin;
    for (int peer = 0; peer < size(); ++peer) {
      const std::int64_t elements = block_elements[static_cast<std::size_t>(peer)];
      if (peer == rank_) {
        copy_block(reinterpret_cast<std::byte*>(parts + peer * my_piece),
                   sendable(send.data() + offset), my_piece * kFloatBytes);
      } else {
        sends.push_back({.peer = peer,
                         .data = sendable(send.data() + offset),
                         .bytes = piece_of(elements) * kFloatBytes});
        receives.push_back({.peer = peer,
                            .data = reinterpret_cast<std::byte*>(parts + peer * my_piece),
                            .bytes = my_piece * kFloatBytes});
      }
      offset += elements;
    }
    transfer(name, sends, receives);
    if (my_piece == 0) {
      continue;
    }
    const std::span<float> mine =
        receive.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(my_piece));
    for (int rank = 0; rank < size(); ++rank) {
      const std::span<const float> one(parts + rank * my_piece, mine.size());
      if (rank == 0) {
        start_sum<float>(mine, one);
      } else {
        add_to_sum<float>(mine, one);
      }
    }
  }
}

void MpiCommunicator::broadcast(std::string_view name, void* data, std::int64_t bytes, int root) {
  LONGHAUL_ASSERT(root >= 0 && root < size(), "the root of a broadcast is a rank of the group");
  const Operation operation(*this, name);
  auto* memory = static_cast<std::byte*>(data);
  std::vector<Block> sends;
  std::vector<Block> receives;
  if (rank_ != root) {
    receives.push_back({.peer = root, .data = memory, .bytes = bytes});
  } else {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != root) {
        sends.push_back({.peer = peer, .data = memory, .bytes = bytes});
      }
    }
  }
  transfer(name, sends, receives);
}

void MpiCommunicator::barrier(std::string_view name) {
  const Operation operation(*this, name);
  const std::vector<std::int64_t> bytes(num_ranks(), 1);
  const std::byte mine{};
  gather_blocks(name, &mine, scratch(size()), bytes);
}

/// The new group's tags are the next range that no member has used, agreed in the same message as
/// the colors.
std::unique_ptr<Communicator> MpiCommunicator::split(int color) {
  struct Proposal {
    int color;
    int context;
  };
  const Proposal mine{.color = color, .context = world().next_context};
  std::vector<Proposal> all(num_ranks());
  const std::vector<std::int64_t> bytes(num_ranks(), sizeof(Proposal));
  all_gather("split", &mine, sizeof(Proposal), all.data(), bytes);
  std::vector<int> members;
  int context = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    context = std::max(context, all[i].context);
    if (all[i].color == color) {
      members.push_back(transfer_.members()[i]);
    }
  }
  world().next_context = context + 1;
  auto child = std::make_unique<MpiCommunicator>(transfer_.shared_world(), members, context);
  child->set_step(step());
  child->set_deadline(deadline());
  return child;
}

void MpiCommunicator::abort(const std::string& reason) {
  world().has_failed = true;
  const base::Problem problem{.where = place("abort"), .what = reason};
  if (world().observer != nullptr) {
    world().observer->rank_aborts(problem.line());
  }
  constexpr int kSystemErrorExit = 3;
  MPI_Abort(MPI_COMM_WORLD, kSystemErrorExit);
  throw base::SystemError(problem);
}

/// The last group of a healthy process waits for the others and closes MPI; a failing one leaves at
/// once.
MpiCommunicator::~MpiCommunicator() {
  const bool is_last = transfer_.shared_world().use_count() == 1;
  if (!is_last || context_ != 0 || world().has_failed ||
      std::uncaught_exceptions() > world().exceptions_at_start) {
    return;
  }
  try {
    barrier("end of the run");
    MPI_Finalize();
  } catch (const std::exception&) {
    world().has_failed = true;  // a peer is gone; its own report explains it
  }
}

std::unique_ptr<Communicator> make_world(const MpiWorldRequest& request) {
  // MPI would try a direct copy and complain when the kernel forbids it; under our launcher this is settled already.
  constexpr const char* kCopyVariable = "OMPI_MCA_btl_vader_single_copy_mechanism";
  if (std::getenv(kCopyVariable) == nullptr) {
    setenv(kCopyVariable, can_copy_between_processes() ? "cma" : "none", 0);
  }
  setenv("OMPI_MCA_opal_signal", "", 0);  // no stack trace in front of the one line that explains
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    throw base::SystemError({.where = "MPI", .what = "MPI_Init failed"});
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  auto world = std::make_shared<MpiWorld>();
  MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world->ranks);
  world->observer = request.observer;
  if (world->rank != request.rank || world->ranks != request.ranks) {
    throw base::SystemError(
        {.where = fmt::format("rank {}, MPI start", request.rank),
         .what = "MPI does not see the ranks that the launch environment promises",
         .got = fmt::format("rank {} of {}", world->rank, world->ranks),
         .expected = fmt::format("rank {} of {}", request.rank, request.ranks),
         .hint = "mpirun or srun and the MPI library of this build must belong to one Open MPI"});
  }
  std::vector<int> members(static_cast<std::size_t>(world->ranks));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<MpiCommunicator>(std::move(world), std::move(members), 0);
}

}  // namespace
}  // namespace longhaul::dist

// The two symbols of the shared object.
extern "C" {

__attribute__((visibility("default"))) longhaul::dist::Communicator* longhaul_mpi_world(
    const longhaul::dist::MpiWorldRequest* request);
__attribute__((visibility("default"))) const char* longhaul_mpi_version();

longhaul::dist::Communicator* longhaul_mpi_world(const longhaul::dist::MpiWorldRequest* request) {
  return longhaul::dist::make_world(*request).release();
}

const char* longhaul_mpi_version() {
  static const std::string version = [] {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string whole(text.data(), static_cast<std::size_t>(length));
    return whole.substr(0, whole.find_first_of(",\n"));
  }();
  return version.c_str();
}

}  // extern "C"
