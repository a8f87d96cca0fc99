#include "dist/process_group.h"

#include <gtest/gtest.h>

#include "dist/comm_threads.h"

namespace longhaul::dist {
namespace {

/// Passes a thread's communicator on where an owner is expected.
class Borrowed final : public Communicator {
 public:
  explicit Borrowed(Communicator& inner) : inner_(inner) {}
  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  void all_to_all(std::string_view, const void*, std::span<const std::int64_t>, void*,
                  std::span<const std::int64_t>) override {}
  void all_gather(std::string_view, const void*, std::int64_t, void*,
                  std::span<const std::int64_t>) override {}
  void all_reduce_sum(std::string_view, std::span<float>) override {}
  void all_reduce_sum(std::string_view, std::span<double>) override {}
  void all_reduce_sum(std::string_view, std::span<std::int64_t>) override {}
  void all_reduce_max(std::string_view, std::span<double>) override {}
  void reduce_scatter_sum(std::string_view, std::span<const float>, std::span<float>,
                          std::span<const std::int64_t>) override {}
  void broadcast(std::string_view, void*, std::int64_t, int) override {}
  void barrier(std::string_view) override {}
  std::unique_ptr<Communicator> split(int color) override { return inner_.split(color); }
  void abort(const std::string& reason) override { inner_.abort(reason); }

 private:
  Communicator& inner_;
};

TEST(ProcessGroup, CutsTheWorldByTheMesh) {
  run_ranks(6, [](Communicator& comm) {
    const config::Mesh mesh{.dp = 2, .sp = 3};
    ProcessGroup group = make_process_group(std::make_unique<Borrowed>(comm), mesh);
    EXPECT_EQ(group.sp->size(), 3);
    EXPECT_EQ(group.dp->size(), 2);
    EXPECT_EQ(group.sp->rank(), comm.rank() % 3);
    EXPECT_EQ(group.dp->rank(), comm.rank() / 3);
    std::vector<std::int64_t> ranks(1, comm.rank());
    group.sp->all_reduce_sum("ranks of a group", ranks);
    EXPECT_EQ(ranks[0], comm.rank() < 3 ? 0 + 1 + 2 : 3 + 4 + 5);
    ranks[0] = comm.rank();
    group.dp->all_reduce_sum("peers of a rank", ranks);
    EXPECT_EQ(ranks[0], 2 * (comm.rank() % 3) + 3);
    group.set_step(9);
    EXPECT_EQ(group.sp->step(), 9);
    EXPECT_EQ(group.dp->step(), 9);
    EXPECT_EQ(group.world->step(), 9);
  });
}

TEST(ProcessGroup, OfOneRankNeedsNoTransport) {
  const ProcessGroup group = make_process_group(open_world(config::LaunchInfo{}), config::Mesh{});
  EXPECT_EQ(group.world->size(), 1);
  EXPECT_EQ(group.sp->size(), 1);
  EXPECT_EQ(group.dp->size(), 1);
}

}  // namespace
}  // namespace longhaul::dist
