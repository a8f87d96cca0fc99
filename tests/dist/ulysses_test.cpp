#include "dist/ulysses.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "dist/broken_comm.h"
#include "dist/comm_threads.h"
#include "dist/ulysses_cases.h"

namespace longhaul::dist {
namespace {

using namespace dist_test;  // NOLINT(google-build-using-namespace): the cases

/// Calls `check(comm, bench, mismatches)` on every rank of every case; returns the number of
/// mismatching ranks.
template <typename Check>
int for_all_cases(at::ScalarType type, std::span<const Layout> layouts, const Check& check) {
  std::atomic<int> mismatches{0};
  for (const Layout& layout : layouts) {
    for (std::int64_t sp = 1; sp <= std::min<std::int64_t>(5, layout.num_q); ++sp) {
      for (const std::int64_t length : row_lengths(sp)) {
        run_ranks(static_cast<int>(sp), [&](Communicator& comm) {
          const Bench bench{.layout = layout,
                            .heads = config::split_heads(layout.num_q, layout.num_kv, sp),
                            .tokens = config::split_tokens(length, sp),
                            .rank = comm.rank(),
                            .type = type};
          if (!check(comm, bench)) {
            ++mismatches;
          }
        });
      }
    }
  }
  return mismatches;
}

TEST(Ulysses, PutsEveryElementWhereItBelongs) {
  EXPECT_EQ(for_all_cases(at::kFloat, kLayouts, forward_is_exact<>), 0);
}

TEST(Ulysses, PutsEveryElementWhereItBelongsInOtherTypes) {
  const Layout layouts[] = {{9, 3}, {8, 2}};
  EXPECT_EQ(for_all_cases(at::kBFloat16, layouts, forward_is_exact<>), 0);
  EXPECT_EQ(for_all_cases(at::kDouble, layouts, forward_is_exact<>), 0);
}

TEST(Ulysses, SumsTheGradientsOfKvCopies) {
  EXPECT_EQ(for_all_cases(at::kFloat, kLayouts, backward_is_exact<>), 0);
  const Layout layouts[] = {{9, 3}, {8, 2}, {28, 4}};
  EXPECT_EQ(for_all_cases(at::kBFloat16, layouts, backward_is_exact<>), 0);
  EXPECT_EQ(for_all_cases(at::kDouble, layouts, backward_is_exact<>), 0);
}

bool rotates_exactly(Communicator& comm, const Bench& bench) {
  return rotation_is_exact<>(comm, bench, bench.my_tokens());
}

TEST(Ulysses, RotatesOnTheWayWithTheBitsOfAPassOfItsOwn) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    EXPECT_EQ(for_all_cases(type, kLayouts, rotates_exactly), 0);
  }
}

TEST(Ulysses, FailsWhenAShardsAnglesBeginWithThoseOfTheRow) {
  const auto check = [](Communicator& comm, const Bench& bench) {
    return rotation_is_exact<>(comm, bench, {0, bench.my_tokens().size()});
  };
  EXPECT_GT(for_all_cases(at::kFloat, kLayouts, check), 0);
}

TEST(Ulysses, LeavesWhatItSendsAsItWas) {
  run_ranks(2, [](Communicator& comm) {
    Bench bench{.layout = {8, 2},
                .heads = config::split_heads(8, 2, 2),
                .tokens = config::split_tokens(7, 2),
                .rank = comm.rank(),
                .type = at::kFloat};
    bench.head_dim = 4;
    UlyssesExchange exchange(comm, bench.heads, bench.head_dim);
    exchange.set_row(bench.tokens);
    const Qkv local{.q = bench.local(kQ), .k = bench.local(kK), .v = bench.local(kV), .fused = {}};
    exchange.seq_to_head_qkv(local, {}, angles_of(bench, bench.my_tokens()));
    EXPECT_TRUE(at::equal(local.q, bench.local(kQ)) && at::equal(local.k, bench.local(kK)));
  });
}

TEST(Ulysses, RotatesInPlaceOnOneRank) {
  const auto comm = make_single();
  Bench bench{.layout = {9, 3},
              .heads = config::split_heads(9, 3, 1),
              .tokens = config::split_tokens(7, 1),
              .rank = 0,
              .type = at::kFloat};
  bench.head_dim = 4;
  UlyssesExchange exchange(*comm, bench.heads, bench.head_dim);
  exchange.set_row(bench.tokens);
  const Qkv local{.q = bench.local(kQ), .k = bench.local(kK), .v = bench.local(kV), .fused = {}};
  const Qkv head = exchange.seq_to_head_qkv(local, {}, angles_of(bench, bench.my_tokens()));
  EXPECT_EQ(head.q.data_ptr(), local.q.data_ptr());
  EXPECT_EQ(head.k.data_ptr(), local.k.data_ptr());
  EXPECT_FALSE(at::equal(head.q, bench.local(kQ)));
  EXPECT_TRUE(at::equal(head.v, bench.local(kV)));
  const Qkv back = exchange.seq_to_head_qkv_backward(head, {}, angles_of(bench, bench.my_tokens()));
  EXPECT_EQ(back.q.data_ptr(), local.q.data_ptr());
  // Values reach 2²⁰, so two roundings stay below 1.
  EXPECT_LT((back.q - bench.local(kQ)).abs().max().item().toDouble(), 1.0);
}

TEST(Ulysses, GivesTheSameBitsThroughPeerMemory) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    EXPECT_EQ(for_all_cases(type, kLayouts, forward_is_exact<ThroughPeers>), 0);
    EXPECT_EQ(for_all_cases(type, kLayouts, backward_is_exact<ThroughPeers>), 0);
  }
  EXPECT_EQ(for_all_cases(at::kFloat, kLayouts,
                          [](Communicator& comm, const Bench& bench) {
                            return rotation_is_exact<ThroughPeers>(comm, bench, bench.my_tokens());
                          }),
            0);
}

TEST(Ulysses, GivesTheSameBitsInParts) {
  EXPECT_EQ(for_all_cases(at::kBFloat16, kLayouts, forward_is_exact<InParts<2>>), 0);
  EXPECT_EQ(for_all_cases(at::kBFloat16, kLayouts, backward_is_exact<InParts<2>>), 0);
  EXPECT_EQ(for_all_cases(at::kFloat, kLayouts, forward_is_exact<InParts<3>>), 0);
  EXPECT_EQ(for_all_cases(at::kFloat, kLayouts, backward_is_exact<InParts<3>>), 0);
  EXPECT_EQ(for_all_cases(at::kFloat, kLayouts,
                          [](Communicator& comm, const Bench& bench) {
                            return rotation_is_exact<InParts<2>>(comm, bench, bench.my_tokens());
                          }),
            0);
}

/// What is made and taken part by part: in order, every row once, with something beside.
TEST(Ulysses, MakesAndTakesEveryRowOnceAndInOrder) {
  run_ranks(2, [](Communicator& comm) {
    InParts<2> exchange(comm, config::split_heads(4, 2, 2), kHeadDim);
    exchange.set_row(config::split_tokens(5, 2));
    const at::Tensor like = at::zeros({exchange.local_tokens(), 4, kHeadDim});
    AlsoGathered gathered{.mine = at::rand({exchange.local_tokens(), 9}).narrow(1, 2, 6)};
    std::vector<LocalRows> made;
    int beside = 0;
    const at::Tensor head = exchange.head_to_seq_backward(
        [&](LocalRows rows) {
          EXPECT_EQ(beside, 0);
          made.push_back(rows);
          return like.narrow(0, rows.begin, rows.size());
        },
        like, [&] { ++beside; }, gathered);
    EXPECT_EQ(head.size(0), 5);
    EXPECT_TRUE(at::equal(gathered.all, exchange.gather_tokens(gathered.mine)));
    ASSERT_EQ(made.size(), 2U);
    EXPECT_EQ(made[0].begin, 0);
    EXPECT_EQ(made[1].begin, made[0].end);
    EXPECT_EQ(made[1].end, exchange.local_tokens());
    std::vector<LocalRows> taken;
    const at::Tensor out = at::empty({exchange.local_tokens(), 4, kHeadDim});
    exchange.head_to_seq(head, out, [&](LocalRows rows) { taken.push_back(rows); });
    ASSERT_EQ(taken.size(), 2U);
    EXPECT_EQ(taken[1].begin, taken[0].end);
    EXPECT_EQ(taken[1].end, exchange.local_tokens());
    EXPECT_EQ(beside, 1);
  });
}

TEST(Ulysses, TakesPeerMemoryForLongerRowsAnewAndSaysTheBytes) {
  const std::vector<config::RankHeads> heads = config::split_heads(8, 2, 2);
  run_ranks(2, [&](Communicator& comm) {
    ThroughPeers exchange(comm, heads, kHeadDim);
    std::int64_t sent = 0;
    for (const std::int64_t length : {4, 9, 3}) {
      const Bench bench{.layout = {8, 2},
                        .heads = heads,
                        .tokens = config::split_tokens(length, 2),
                        .rank = comm.rank(),
                        .type = at::kFloat};
      exchange.set_row(bench.tokens);
      const Qkv head = exchange.seq_to_head_qkv(
          {.q = bench.local(kQ), .k = bench.local(kK), .v = bench.local(kV), .fused = {}});
      EXPECT_TRUE(exchange.uses_peer_memory());
      EXPECT_TRUE(at::equal(head.q, bench.head_local(kQ)));
      sent += bench.my_tokens().size() * (4 + 2) * kHeadDim * 4;
      EXPECT_EQ(comm.counters().exchange_bytes, sent);
    }
    EXPECT_GT(exchange.staging_bytes(), 0);
    exchange.use_peer_memory(false);
    EXPECT_FALSE(exchange.uses_peer_memory());
  });
}

/// Peers whose writes stay at home.
TEST(Ulysses, FailsWhenPeersWritesDoNotArrive) {
  const auto deaf = [](Communicator& comm, const Bench& bench) {
    dist_test::DeafPeers broken(comm);
    return forward_is_exact<InParts<2>>(broken, bench);
  };
  EXPECT_GT(for_all_cases(at::kFloat, kLayouts, deaf), 10);
}

TEST(Ulysses, FailsWhenTheExchangeIsIdentity) {
  const auto identity = [](auto check) {
    return [check](Communicator& comm, const Bench& bench) {
      dist_test::IdentityExchange broken(comm);
      return check(broken, bench);
    };
  };
  EXPECT_GT(for_all_cases(at::kFloat, kLayouts, identity(forward_is_exact<>)), 0);
  EXPECT_GT(for_all_cases(at::kFloat, kLayouts, identity(backward_is_exact<>)), 0);
  EXPECT_GT(for_all_cases(at::kFloat, kLayouts, identity(rotates_exactly)), 0);
  for (const Layout& layout : kLayouts) {  // every layout shows it, even 4/4 on two ranks
    const Layout one[] = {layout};
    EXPECT_GT(for_all_cases(at::kFloat, one, identity(forward_is_exact<>)), 10);
  }
}

TEST(Ulysses, FailsWhenKvCopiesAreNotSummed) {
  const Layout copied[] = {{8, 2}};
  EXPECT_GT(for_all_cases(at::kFloat, copied, backward_is_exact<dist_test::UnsummedKvCopies>), 0);
  EXPECT_EQ(for_all_cases(at::kFloat, copied, forward_is_exact<dist_test::UnsummedKvCopies>), 0);
}

double dot_product(const at::Tensor& a, const at::Tensor& b) {
  return a.to(at::kDouble).mul(b.to(at::kDouble)).sum().item().toDouble();
}

TEST(Ulysses, BackwardIsTheExactTransposeOfForward) {
  const auto is_transpose = [](Communicator& comm, const Bench& bench) {
    UlyssesExchange exchange(comm, bench.heads, kHeadDim);
    exchange.set_row(bench.tokens);
    const auto small = [&](std::int64_t rows, std::int64_t heads, std::int64_t kind) {
      return filled(rows, heads, kHeadDim, at::kDouble,
                    [&](std::int64_t row, std::int64_t head, std::int64_t dim) {
                      return hashed(kind + 10 * bench.rank, row, head, dim, at::kBFloat16) - 128;
                    });
    };
    const std::int64_t s = bench.my_tokens().size();
    const std::int64_t t = bench.row();
    const Qkv x{.q = small(s, bench.layout.num_q, 1),
                .k = small(s, bench.layout.num_kv, 2),
                .v = small(s, bench.layout.num_kv, 3),
                .fused = {}};
    const Qkv y{.q = small(t, bench.mine().num_query_heads(), 4),
                .k = small(t, bench.mine().num_kv_heads(), 5),
                .v = small(t, bench.mine().num_kv_heads(), 6),
                .fused = {}};
    const Qkv fx = exchange.seq_to_head_qkv(x);
    const Qkv fty = exchange.seq_to_head_qkv_backward(y);
    const at::Tensor o = small(t, bench.mine().num_query_heads(), 7);
    const at::Tensor d_o = small(s, bench.layout.num_q, 8);
    std::vector<double> sums{
        dot_product(fx.q, y.q) + dot_product(fx.k, y.k) + dot_product(fx.v, y.v),
        dot_product(x.q, fty.q) + dot_product(x.k, fty.k) + dot_product(x.v, fty.v),
        dot_product(exchange.head_to_seq(o), d_o),
        dot_product(o, exchange.head_to_seq_backward(d_o))};
    comm.all_reduce_sum("sum of products", std::span<double>(sums));
    return sums[0] == sums[1] && sums[2] == sums[3];
  };
  EXPECT_EQ(for_all_cases(at::kDouble, kLayouts, is_transpose), 0);
}

TEST(Ulysses, SumsCopiesInFp32BeforeRounding) {
  // 256 + 1 rounds to 256 in bf16, twice; the fp32 sum 258 is representable.
  run_ranks(3, [](Communicator& comm) {
    UlyssesExchange exchange(comm, config::split_heads(3, 1, 3), 1);
    exchange.set_row(config::split_tokens(3, 3));
    const double mine = comm.rank() == 0 ? 256 : 1;
    const auto all = [&](std::int64_t rows, std::int64_t heads) {
      return filled(rows, heads, 1, at::kBFloat16,
                    [&](std::int64_t, std::int64_t, std::int64_t) { return mine; });
    };
    const Qkv local = exchange.seq_to_head_qkv_backward(
        {.q = all(3, 1), .k = all(3, 1), .v = all(3, 1), .fused = {}});
    EXPECT_EQ(local.k.item().toDouble(), 258);
    EXPECT_EQ(local.v.item().toDouble(), 258);
  });
}

TEST(Ulysses, TakesStridedViewsAndWritesIntoGivenBuffers) {
  const auto check = [](Communicator& comm, const Bench& bench) {
    UlyssesExchange exchange(comm, bench.heads, kHeadDim);
    exchange.set_row(bench.tokens);
    const std::int64_t s = bench.my_tokens().size();
    const std::int64_t width = (bench.layout.num_q + 2 * bench.layout.num_kv) * kHeadDim;
    // A projection's output with spare columns at its right.
    const at::Tensor padded = at::empty({s, width + 5}, at::TensorOptions().dtype(bench.type));
    const Qkv local =
        split_qkv(padded.narrow(1, 0, width), bench.layout.num_q, bench.layout.num_kv, kHeadDim);
    local.q.copy_(bench.local(kQ));
    local.k.copy_(bench.local(kK));
    local.v.copy_(bench.local(kV));
    const std::int64_t my_width =
        (bench.mine().num_query_heads() + 2 * bench.mine().num_kv_heads()) * kHeadDim;
    const at::Tensor out =
        at::empty({bench.row(), my_width}, at::TensorOptions().dtype(bench.type));
    const Qkv head = exchange.seq_to_head_qkv(local, out);
    if (comm.size() > 1 && head.q.data_ptr() != out.data_ptr()) {
      return false;
    }
    // Head-local gradients as views of one buffer travel without being packed.
    const Qkv d_head = split_qkv(out.clone(), bench.mine().num_query_heads(),
                                 bench.mine().num_kv_heads(), kHeadDim);
    d_head.q.copy_(bench.head_gradient(kQ));
    d_head.k.copy_(bench.head_gradient(kK));
    d_head.v.copy_(bench.head_gradient(kV));
    const Qkv back = exchange.seq_to_head_qkv_backward(d_head);
    return at::equal(head.q, bench.head_local(kQ)) && at::equal(head.k, bench.head_local(kK)) &&
           at::equal(head.v, bench.head_local(kV)) &&
           at::equal(back.q, bench.summed_gradient(kQ)) &&
           at::equal(back.k, bench.summed_gradient(kK)) &&
           at::equal(back.v, bench.summed_gradient(kV));
  };
  EXPECT_EQ(for_all_cases(at::kFloat, kLayouts, check), 0);
}

TEST(Ulysses, GathersRowsOfAllTokens) {
  const auto check = [](Communicator& comm, const Bench& bench) {
    UlyssesExchange exchange(comm, bench.heads, kHeadDim);
    exchange.set_row(bench.tokens);
    const at::Tensor mine = bench.local(kO).flatten(1);
    at::Tensor all = filled(bench.row(), bench.layout.num_q, kHeadDim, bench.type,
                            [&](std::int64_t row, std::int64_t head, std::int64_t dim) {
                              return hashed(kO, row, head, dim, bench.type);
                            });
    return at::equal(exchange.gather_tokens(mine), all.flatten(1));
  };
  EXPECT_EQ(for_all_cases(at::kFloat, kLayouts, check), 0);
}

TEST(Ulysses, CostsNothingOnOneRank) {
  const auto comm = make_single();
  UlyssesExchange exchange(*comm, config::split_heads(9, 3, 1), kHeadDim);
  exchange.set_row(config::split_tokens(7, 1));
  const at::Tensor fused = at::empty({7, 15 * kHeadDim}, at::TensorOptions().dtype(at::kFloat));
  const Qkv local = split_qkv(fused, 9, 3, kHeadDim);
  const Qkv head = exchange.seq_to_head_qkv(local);
  EXPECT_EQ(head.q.data_ptr(), local.q.data_ptr());
  EXPECT_EQ(head.v.data_ptr(), local.v.data_ptr());
  EXPECT_EQ(exchange.seq_to_head_qkv_backward(local).k.data_ptr(), local.k.data_ptr());
  EXPECT_EQ(exchange.head_to_seq(local.q).data_ptr(), local.q.data_ptr());
  EXPECT_EQ(exchange.head_to_seq_backward(local.q).data_ptr(), local.q.data_ptr());
  EXPECT_EQ(exchange.gather_tokens(fused).data_ptr(), fused.data_ptr());
  EXPECT_EQ(exchange.staging_bytes(), 0);
  EXPECT_EQ(comm->counters().num_exchanges, 0);
}

TEST(Ulysses, SendsTheBytesItSaysAndOneMessagePerExchange) {
  run_ranks(2, [](Communicator& comm) {
    UlyssesExchange exchange(comm, config::split_heads(9, 3, 2), 4);
    exchange.set_row(config::split_tokens(11, 2));
    const auto zeros = [](std::int64_t rows, std::int64_t heads) {
      return filled(rows, heads, 4, at::kFloat,
                    [](std::int64_t, std::int64_t, std::int64_t) { return 0.0; });
    };
    const std::int64_t s = exchange.local_tokens();
    comm.reset_counters();
    exchange.seq_to_head_qkv({.q = zeros(s, 9), .k = zeros(s, 3), .v = zeros(s, 3), .fused = {}});
    const auto peers = config::split_heads(9, 3, 2);
    const RankHeads& peer = peers[static_cast<std::size_t>(1 - comm.rank())];
    EXPECT_EQ(comm.counters().exchange_bytes,
              s * 4 * 4 * (peer.num_query_heads() + 2 * peer.num_kv_heads()));
    EXPECT_EQ(comm.counters().num_exchanges, 1);
    comm.reset_counters();
    exchange.head_to_seq(zeros(11, exchange.my_heads().num_query_heads()));
    EXPECT_EQ(comm.counters().exchange_bytes,
              (11 - s) * exchange.my_heads().num_query_heads() * 4 * 4);
  });
}

TEST(Ulysses, ChangesRowsWithoutBeingMadeAgain) {
  run_ranks(3, [](Communicator& comm) {
    UlyssesExchange exchange(comm, config::split_heads(9, 3, 3), kHeadDim);
    for (const std::int64_t length : {20, 1, 7}) {
      const Bench bench{.layout = {9, 3},
                        .heads = config::split_heads(9, 3, 3),
                        .tokens = config::split_tokens(length, 3),
                        .rank = comm.rank(),
                        .type = at::kFloat};
      exchange.set_row(bench.tokens);
      EXPECT_TRUE(at::equal(exchange.head_to_seq(bench.head_local(kO)), bench.local(kO)));
    }
  });
}

TEST(Ulysses, RefusesShapesThatAreNotTheRow) {
  const auto comm = make_single();
  UlyssesExchange exchange(*comm, config::split_heads(4, 4, 1), kHeadDim);
  exchange.set_row(config::split_tokens(5, 1));
  EXPECT_THROW(exchange.head_to_seq(at::empty({4, 4, kHeadDim}, at::TensorOptions())),
               base::InternalError);
}

}  // namespace
}  // namespace longhaul::dist
