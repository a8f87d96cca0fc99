#include "dist/comm_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace longhaul::dist_test {
namespace {

using dist::Communicator;

void expect(bool holds, std::string_view what, const Communicator& comm) {
  if (!holds) {
    throw std::runtime_error(fmt::format("{} (rank {} of {})", what, comm.rank(), comm.size()));
  }
}

std::int64_t total(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

/// Byte `i` of the block that `from` sends to `to`.
std::byte block_byte(int from, int to, std::int64_t i) {
  return static_cast<std::byte>((from * 131 + to * 37 + i * 7 + 11) & 0xff);
}

/// Odd sizes with zeros among them; rank 0 sends nothing at all to odd ranks.
std::int64_t block_size(int from, int to) {
  return from == 0 && to % 2 == 1 ? 0 : (from * 5 + to * 3) % 4 * 1021;
}

void exchange_with(Communicator& comm, std::int64_t scale) {
  std::vector<std::int64_t> send_bytes;
  std::vector<std::int64_t> receive_bytes;
  std::vector<std::byte> send;
  for (int peer = 0; peer < comm.size(); ++peer) {
    send_bytes.push_back(block_size(comm.rank(), peer) * scale);
    receive_bytes.push_back(block_size(peer, comm.rank()) * scale);
    for (std::int64_t i = 0; i < send_bytes.back(); ++i) {
      send.push_back(block_byte(comm.rank(), peer, i));
    }
  }
  std::vector<std::byte> receive(static_cast<std::size_t>(total(receive_bytes)));
  comm.all_to_all("exchange blocks", send.data(), send_bytes, receive.data(), receive_bytes);
  std::size_t at = 0;
  for (int peer = 0; peer < comm.size(); ++peer) {
    for (std::int64_t i = 0; i < receive_bytes[static_cast<std::size_t>(peer)]; ++i, ++at) {
      expect(receive[at] == block_byte(peer, comm.rank(), i), "all_to_all moved a wrong byte",
             comm);
    }
  }
}

void all_to_all_small(Communicator& comm) { exchange_with(comm, 1); }
void all_to_all_large(Communicator& comm) { exchange_with(comm, 257); }
void all_to_all_empty(Communicator& comm) { exchange_with(comm, 0); }

void all_to_all_counts_bytes(Communicator& comm) {
  comm.reset_counters();
  const std::vector<std::int64_t> bytes(static_cast<std::size_t>(comm.size()), 24);
  std::vector<std::byte> send(static_cast<std::size_t>(total(bytes)));
  std::vector<std::byte> receive(send.size());
  comm.all_to_all("exchange blocks", send.data(), bytes, receive.data(), bytes);
  expect(comm.counters().exchange_bytes == 24 * (comm.size() - 1), "bytes to others counted", comm);
  expect(comm.counters().num_exchanges == 1 || comm.size() == 1, "exchanges counted", comm);
}

/// A rank's block for itself is left alone when it is absent from one side, and so is what lies
/// behind the blocks that arrive.
void all_to_all_leaves_own_block(Communicator& comm) {
  constexpr std::int64_t kBytes = 40;
  constexpr std::byte kOld{99};
  const auto me = static_cast<std::size_t>(comm.rank());
  const std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()), kBytes);
  std::vector<std::int64_t> others = all;
  others[me] = 0;
  const auto mark = [](int from) { return static_cast<std::byte>(from + 1); };
  const auto holds = [](const std::vector<std::byte>& memory, std::size_t from, std::byte want) {
    const auto* block = memory.data() + from;
    return std::all_of(block, block + kBytes, [&](std::byte one) { return one == want; });
  };
  const std::vector<std::byte> send(static_cast<std::size_t>(total(all)), mark(comm.rank()));
  std::vector<std::byte> in_place(send.size(), kOld);
  comm.all_to_all("exchange blocks", send.data(), others, in_place.data(), all);
  std::vector<std::byte> without(send.size(), kOld);
  comm.all_to_all("exchange blocks", send.data(), all, without.data(), others);
  std::size_t next = 0;
  for (int peer = 0; peer < comm.size(); ++peer) {
    const bool is_me = peer == comm.rank();
    expect(holds(in_place, static_cast<std::size_t>(peer * kBytes), is_me ? kOld : mark(peer)),
           is_me ? "own block in its place" : "blocks around one's own", comm);
    if (!is_me) {
      expect(holds(without, next, mark(peer)), "blocks without one's own", comm);
      next += kBytes;
    }
  }
  expect(holds(without, next, kOld), "nothing behind the last block", comm);
}

void all_gather_uneven(Communicator& comm) {
  std::vector<std::int64_t> bytes;
  for (int rank = 0; rank < comm.size(); ++rank) {
    bytes.push_back(rank % 3 == 1 ? 0 : 1000 + 13 * rank);
  }
  const std::int64_t mine = bytes[static_cast<std::size_t>(comm.rank())];
  std::vector<std::byte> send;
  for (std::int64_t i = 0; i < mine; ++i) {
    send.push_back(block_byte(comm.rank(), 0, i));
  }
  std::vector<std::byte> receive(static_cast<std::size_t>(total(bytes)));
  comm.all_gather("gather blocks", send.data(), mine, receive.data(), bytes);
  std::size_t at = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    for (std::int64_t i = 0; i < bytes[static_cast<std::size_t>(rank)]; ++i, ++at) {
      expect(receive[at] == block_byte(rank, 0, i), "all_gather moved a wrong byte", comm);
    }
  }
}

/// Values whose sum depends on the order: only rank order gives these bits.
float rough_value(int rank, std::size_t i) {
  const auto scaled = static_cast<double>(static_cast<int>((i * 7919 + 13) % 1000) - 500);
  return static_cast<float>(scaled * std::pow(10.0, (rank * 5) % 9 - 4) / 3.0);
}

void sums_are_in_rank_order(Communicator& comm) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{4099}}) {
    std::vector<float> values(count);
    std::vector<double> wide(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = rough_value(comm.rank(), i);
      wide[i] = rough_value(comm.rank(), i) / 7.0;
    }
    comm.all_reduce_sum("sum floats", values);
    comm.all_reduce_sum("sum doubles", wide);
    for (std::size_t i = 0; i < count; ++i) {
      float sum = rough_value(0, i);
      double wide_sum = rough_value(0, i) / 7.0;
      for (int rank = 1; rank < comm.size(); ++rank) {
        sum += rough_value(rank, i);
        wide_sum += rough_value(rank, i) / 7.0;
      }
      expect(std::bit_cast<std::uint32_t>(sum) == std::bit_cast<std::uint32_t>(values[i]),
             "float sum in rank order", comm);
      expect(std::bit_cast<std::uint64_t>(wide_sum) == std::bit_cast<std::uint64_t>(wide[i]),
             "double sum in rank order", comm);
    }
  }
}

void integers_and_maxima(Communicator& comm) {
  std::vector<std::int64_t> counts{comm.rank(), std::int64_t{1} << 60, -5};
  comm.all_reduce_sum("count", counts);
  const std::int64_t ranks = comm.size();
  expect(counts[0] == ranks * (ranks - 1) / 2, "integer sum", comm);
  if (ranks <= 7) {
    expect(counts[1] == ranks << 60, "large integer sum", comm);
  }
  expect(counts[2] == -5 * ranks, "negative integer sum", comm);
  std::vector<double> values{-1.5 - comm.rank(), static_cast<double>(comm.rank()),
                             comm.rank() == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0};
  comm.all_reduce_max("maximum", values);
  expect(values[0] == -1.5, "maximum of negative numbers", comm);
  expect(values[1] == static_cast<double>(ranks - 1), "maximum", comm);
  expect(std::isnan(values[2]), "a NaN is not hidden", comm);
}

void reduce_scatter_uneven(Communicator& comm) {
  std::vector<std::int64_t> blocks;
  for (int rank = 0; rank < comm.size(); ++rank) {
    blocks.push_back(rank % 2 == 1 ? 0 : 101 + rank);
  }
  std::vector<float> send(static_cast<std::size_t>(total(blocks)));
  for (std::size_t i = 0; i < send.size(); ++i) {
    send[i] = rough_value(comm.rank(), i);
  }
  std::vector<float> receive(
      static_cast<std::size_t>(blocks[static_cast<std::size_t>(comm.rank())]));
  comm.reduce_scatter_sum("scatter sums", send, receive, blocks);
  const auto offset = static_cast<std::size_t>(
      std::accumulate(blocks.begin(), blocks.begin() + comm.rank(), std::int64_t{0}));
  for (std::size_t i = 0; i < receive.size(); ++i) {
    float sum = rough_value(0, offset + i);
    for (int rank = 1; rank < comm.size(); ++rank) {
      sum += rough_value(rank, offset + i);
    }
    expect(std::bit_cast<std::uint32_t>(sum) == std::bit_cast<std::uint32_t>(receive[i]),
           "reduce_scatter sum in rank order", comm);
  }
}

void broadcast_from_every_rank(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{70001}}) {
      std::vector<std::byte> data(bytes);
      for (std::size_t i = 0; i < bytes; ++i) {
        data[i] = block_byte(comm.rank(), root, static_cast<std::int64_t>(i));
      }
      comm.broadcast("broadcast block", data.data(), static_cast<std::int64_t>(bytes), root);
      for (std::size_t i = 0; i < bytes; ++i) {
        expect(data[i] == block_byte(root, root, static_cast<std::int64_t>(i)),
               "broadcast brought a wrong byte", comm);
      }
    }
  }
}

void split_by_parity(Communicator& comm) {
  comm.set_step(3);
  const auto group = comm.split(comm.rank() % 2);
  expect(group->step() == 3, "a group starts at its parent's step", comm);
  const int expected_size = comm.rank() % 2 == 0 ? (comm.size() + 1) / 2 : comm.size() / 2;
  expect(group->size() == expected_size, "size of a split group", comm);
  expect(group->rank() == comm.rank() / 2, "rank in a split group", comm);
  std::vector<std::int64_t> sum{comm.rank()};
  group->all_reduce_sum("sum of a group", sum);
  std::int64_t expected = 0;
  for (int rank = comm.rank() % 2; rank < comm.size(); rank += 2) {
    expected += rank;
  }
  expect(sum[0] == expected, "a split group sums its own ranks only", comm);
  exchange_with(*group, 1);
  comm.barrier("after split");
}

constexpr CommCase kCases[] = {
    {"all_to_all_small", all_to_all_small},
    {"all_to_all_large", all_to_all_large},
    {"all_to_all_empty", all_to_all_empty},
    {"all_to_all_counts_bytes", all_to_all_counts_bytes},
    {"all_to_all_leaves_own_block", all_to_all_leaves_own_block},
    {"all_gather_uneven", all_gather_uneven},
    {"sums_are_in_rank_order", sums_are_in_rank_order},
    {"integers_and_maxima", integers_and_maxima},
    {"reduce_scatter_uneven", reduce_scatter_uneven},
    {"broadcast_from_every_rank", broadcast_from_every_rank},
    {"split_by_parity", split_by_parity},
};

}  // namespace

std::span<const CommCase> comm_cases() { return kCases; }

}  // namespace longhaul::dist_test
