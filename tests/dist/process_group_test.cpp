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
  std::unique_ptr<Communicator> split(int color) override {
    ++num_splits;
    return inner_.split(color);
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }

  int num_splits = 0;

 private:
  Communicator& inner_;
};

TEST(ProcessGroup, CutsTheWorldByTheMesh) {
  run_ranks(6, [](Communicator& comm) {
    const config::Mesh mesh{.dp = 2, .sp = 3};
    ProcessGroup group = make_process_group(std::make_unique<Borrowed>(comm), mesh);
    EXPECT_NE(group.sp, group.world);
    EXPECT_NE(group.dp, group.world);
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

TEST(ProcessGroup, OfAllRanksIsTheWorldAndOfOneRankNeedsNoTransport) {
  for (const config::Mesh mesh : {config::Mesh{.dp = 1, .sp = 3}, config::Mesh{.dp = 3, .sp = 1}}) {
    run_ranks(3, [&](Communicator& comm) {
      auto owned = std::make_unique<Borrowed>(comm);
      const Borrowed& world = *owned;
      owned->set_step(4);
      owned->set_deadline(std::chrono::milliseconds(1234));
      const ProcessGroup group = make_process_group(std::move(owned), mesh);
      EXPECT_EQ(world.num_splits, 0);
      const auto& all = mesh.sp == 3 ? group.sp : group.dp;
      const auto& alone = mesh.sp == 3 ? group.dp : group.sp;
      EXPECT_EQ(all, group.world);
      EXPECT_EQ(alone->size(), 1);
      EXPECT_EQ(alone->rank(), 0);
      EXPECT_EQ(alone->step(), 4);
      EXPECT_EQ(alone->deadline().count(), 1234);
      group.set_step(9);
      EXPECT_EQ(alone->step(), 9);
      EXPECT_EQ(group.world->step(), 9);
    });
  }
}

TEST(ProcessGroup, OfOneRankNeedsNoTransport) {
  const ProcessGroup group = make_process_group(open_world(config::LaunchInfo{}), config::Mesh{});
  EXPECT_EQ(group.world->size(), 1);
  EXPECT_EQ(group.sp->size(), 1);
  EXPECT_EQ(group.dp->size(), 1);
}

}  // namespace
}  // namespace longhaul::dist
