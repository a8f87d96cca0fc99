// A group of one rank: collectives are copies at most, so a run without parallelism costs nothing. Memory may be the
// host's or a GPU's.
#include "base/error.h"
#include "dist/comm_error.h"
#include "dist/communicator.h"
#include "dist/rank_order.h"
#include "ops/backend.h"

namespace longhaul::dist {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }

  void all_to_all(std::string_view /*name*/, const void* send,
                  std::span<const std::int64_t> send_bytes, void* receive,
                  std::span<const std::int64_t> receive_bytes) override {
    LONGHAUL_ASSERT(send_bytes.size() == 1 && receive_bytes.size() == 1,
                    "a group of one exchanges one block with itself");
    ops::copy_bytes(receive, send, own_block_bytes(send_bytes[0], receive_bytes[0]));
  }

  void all_gather(std::string_view /*name*/, const void* send, std::int64_t send_bytes,
                  void* receive, std::span<const std::int64_t> receive_bytes) override {
    LONGHAUL_ASSERT(receive_bytes.size() == 1 && receive_bytes[0] == send_bytes,
                    "a group of one gathers its own block");
    ops::copy_bytes(receive, send, send_bytes);
  }

  void all_reduce_sum(std::string_view /*name*/, std::span<float> /*values*/) override {}
  void all_reduce_sum(std::string_view /*name*/, std::span<double> /*values*/) override {}
  void all_reduce_sum(std::string_view /*name*/, std::span<std::int64_t> /*values*/) override {}
  void all_reduce_max(std::string_view /*name*/, std::span<double> /*values*/) override {}

  void reduce_scatter_sum(std::string_view /*name*/, std::span<const float> send,
                          std::span<float> receive,
                          std::span<const std::int64_t> block_elements) override {
    LONGHAUL_ASSERT(block_elements.size() == 1 && send.size() == receive.size(),
                    "a group of one keeps its only block");
    ops::copy_bytes(receive.data(), send.data(), static_cast<std::int64_t>(send.size_bytes()));
  }

  void broadcast(std::string_view /*name*/, void* /*data*/, std::int64_t /*bytes*/,
                 int root) override {
    LONGHAUL_ASSERT(root == 0, "the root of a group of one is rank 0");
  }

  void barrier(std::string_view /*name*/) override {}

  std::unique_ptr<Communicator> split(int /*color*/) override {
    std::unique_ptr<Communicator> group = make_single();
    group->set_step(step());
    group->set_deadline(deadline());
    return group;
  }

  void abort(const std::string& reason) override {
    throw base::SystemError({.where = operation_place(0, step(), "abort"), .what = reason});
  }
};

}  // namespace

std::unique_ptr<Communicator> make_single() { return std::make_unique<SingleCommunicator>(); }

}  // namespace longhaul::dist
