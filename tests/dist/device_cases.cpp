#include "dist/device_cases.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <stdexcept>
#include <vector>

namespace longhaul::dist_test {
namespace {

using dist::Communicator;

/// Elements of the block that a rank has for a peer, or for everybody.
constexpr std::int64_t kElements = 1000;
/// What lies in memory that nothing has arrived in.
constexpr double kOld = -1;

struct Rank {
  Communicator& comm;
  at::Device device;

  [[nodiscard]] at::Tensor filled(double value, std::int64_t elements = kElements,
                                  at::ScalarType type = at::kFloat) const {
    return at::full({elements}, value, at::TensorOptions(device).dtype(type));
  }
  void expect(const at::Tensor& got, const at::Tensor& want, std::string_view what) const {
    if (!got.cpu().equal(want.cpu())) {
      throw std::runtime_error(fmt::format("{} in memory of {} (rank {} of {})", what, device.str(),
                                           comm.rank(), comm.size()));
    }
  }
};

/// The value of the block that `from` has for `to`.
double mark(int from, int to) { return 1 + from * 16 + to; }

void exchange_blocks(const Rank& rank) {
  Communicator& comm = rank.comm;
  constexpr std::int64_t kBytes = kElements * static_cast<std::int64_t>(sizeof(float));
  const std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()), kBytes);
  std::vector<std::int64_t> others = all;
  others[static_cast<std::size_t>(comm.rank())] = 0;
  std::vector<at::Tensor> sent;
  std::vector<at::Tensor> whole;
  std::vector<at::Tensor> around;
  for (int peer = 0; peer < comm.size(); ++peer) {
    sent.push_back(rank.filled(mark(comm.rank(), peer)));
    whole.push_back(rank.filled(mark(peer, comm.rank())));
    around.push_back(peer == comm.rank() ? rank.filled(kOld) : whole.back());
  }
  const at::Tensor send = at::cat(sent);
  at::Tensor receive = rank.filled(kOld, send.numel());
  comm.all_to_all("exchange blocks", send.data_ptr(), all, receive.data_ptr(), all);
  rank.expect(receive, at::cat(whole), "exchanged blocks");

  sent.erase(sent.begin() + comm.rank());
  sent.push_back(rank.filled(kOld));
  receive = rank.filled(kOld, send.numel());
  comm.all_to_all("exchange blocks", at::cat(sent).data_ptr(), others, receive.data_ptr(), all);
  rank.expect(receive, at::cat(around), "blocks around one's own");

  whole.erase(whole.begin() + comm.rank());
  whole.push_back(rank.filled(kOld));
  receive = rank.filled(kOld, send.numel());
  comm.all_to_all("exchange blocks", send.data_ptr(), all, receive.data_ptr(), others);
  rank.expect(receive, at::cat(whole), "blocks without one's own");
}

void gather_uneven_blocks(const Rank& rank) {
  Communicator& comm = rank.comm;
  std::vector<std::int64_t> bytes;
  std::vector<at::Tensor> blocks;
  for (int peer = 0; peer < comm.size(); ++peer) {
    blocks.push_back(rank.filled(mark(peer, 0), kElements * (peer % 3 + 1)));
    bytes.push_back(static_cast<std::int64_t>(blocks.back().nbytes()));
  }
  const at::Tensor want = at::cat(blocks);
  const at::Tensor all = rank.filled(kOld, want.numel());
  const at::Tensor& mine = blocks[static_cast<std::size_t>(comm.rank())];
  comm.all_gather("gather blocks", mine.data_ptr(), static_cast<std::int64_t>(mine.nbytes()),
                  all.data_ptr(), bytes);
  rank.expect(all, want, "gathered blocks");
}

template <typename T>
std::span<T> span_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

void sum_and_scatter(const Rank& rank) {
  Communicator& comm = rank.comm;
  const int ranks = comm.size();
  const double mine = comm.rank() + 1;
  const double sum = ranks * (ranks + 1) / 2.0;
  const at::Tensor floats = rank.filled(mine);
  comm.all_reduce_sum("sum floats", span_of<float>(floats));
  rank.expect(floats, rank.filled(sum), "sum of floats");
  const at::Tensor doubles = rank.filled(mine, kElements, at::kDouble);
  comm.all_reduce_sum("sum doubles", span_of<double>(doubles));
  rank.expect(doubles, rank.filled(sum, kElements, at::kDouble), "sum of doubles");
  comm.all_reduce_max("maximum", span_of<double>(doubles));
  rank.expect(doubles, rank.filled(sum, kElements, at::kDouble), "maximum");
  const at::Tensor counts = rank.filled(mine, kElements, at::kLong);
  comm.all_reduce_sum("count", span_of<std::int64_t>(counts));
  rank.expect(counts, rank.filled(sum, kElements, at::kLong), "sum of integers");

  const std::vector<std::int64_t> blocks(static_cast<std::size_t>(ranks), kElements);
  const at::Tensor send = rank.filled(mine, kElements * ranks);
  const at::Tensor part = rank.filled(kOld);
  comm.reduce_scatter_sum("scatter sums", span_of<float>(send), span_of<float>(part), blocks);
  rank.expect(part, rank.filled(sum), "scattered sum");
}

void broadcast_from_every_rank(const Rank& rank) {
  for (int root = 0; root < rank.comm.size(); ++root) {
    const at::Tensor data = rank.filled(mark(rank.comm.rank(), root));
    rank.comm.broadcast("broadcast block", data.data_ptr(),
                        static_cast<std::int64_t>(data.nbytes()), root);
    rank.expect(data, rank.filled(mark(root, root)), "broadcast block");
  }
}

}  // namespace

void run_device_cases(Communicator& comm, at::Device device) {
  const Rank rank{.comm = comm, .device = device};
  exchange_blocks(rank);
  gather_uneven_blocks(rank);
  sum_and_scatter(rank);
  broadcast_from_every_rank(rank);
}

}  // namespace longhaul::dist_test
