// Every element of a tensor is a hash of (token, head, dim), so a permutation that keeps the
// element count cannot pass. Expected values are computed from the hash, never from another
// exchange.
#include "dist/ulysses.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "dist/broken_comm.h"
#include "dist/comm_threads.h"

namespace longhaul::dist {
namespace {

using config::Range;
using config::RankHeads;

enum Kind : std::int64_t { kQ = 1, kK = 2, kV = 3, kO = 4 };

/// An integer that every type used here holds exactly (8 bits for bf16, 20 bits otherwise).
double hashed(std::int64_t kind, std::int64_t token, std::int64_t head, std::int64_t dim,
              at::ScalarType type) {
  std::uint64_t x = static_cast<std::uint64_t>(kind) * 0x9e3779b97f4a7c15ULL;
  for (const std::int64_t part : {token, head, dim}) {
    x = (x ^ static_cast<std::uint64_t>(part + 1)) * 0xff51afd7ed558ccdULL;
    x ^= x >> 29;
  }
  const std::uint64_t values = type == at::kBFloat16 ? 255 : (1U << 20) - 1;
  return static_cast<double>(x % values + 1);
}

/// A tensor [rows, heads, d] filled by `value(row, head, dim)`.
template <typename Value>
at::Tensor filled(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, at::ScalarType type,
                  const Value& value) {
  at::Tensor x = at::empty({rows, heads, head_dim}, at::TensorOptions().dtype(at::kDouble));
  double* out = x.data_ptr<double>();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t dim = 0; dim < head_dim; ++dim) {
        *out++ = value(row, head, dim);
      }
    }
  }
  return x.to(type);
}

struct Layout {
  std::int64_t num_q;
  std::int64_t num_kv;
};
constexpr Layout kLayouts[] = {{4, 4}, {8, 2}, {6, 2}, {9, 3}, {28, 4}};
constexpr std::int64_t kHeadDim = 3;

std::vector<std::int64_t> row_lengths(std::int64_t sp) {
  std::vector<std::int64_t> lengths{1};
  for (const std::int64_t length : {sp - 1, sp, sp + 1, 4 * sp + 3}) {
    if (length >= 1) {
      lengths.push_back(length);
    }
  }
  return lengths;
}

/// What one rank sees of one case.
struct Bench {
  Layout layout;
  std::vector<RankHeads> heads;
  std::vector<Range> tokens;
  int rank;
  at::ScalarType type;

  [[nodiscard]] const RankHeads& mine() const { return heads[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Range my_tokens() const { return tokens[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::int64_t row() const { return tokens.back().end; }

  /// All heads of this rank's tokens.
  [[nodiscard]] at::Tensor local(Kind kind) const {
    const bool is_kv = kind == kK || kind == kV;
    return filled(my_tokens().size(), is_kv ? layout.num_kv : layout.num_q, kHeadDim, type,
                  [&](std::int64_t row, std::int64_t head, std::int64_t dim) {
                    return hashed(kind, my_tokens().begin + row, head, dim, type);
                  });
  }
  /// This rank's heads of all tokens.
  [[nodiscard]] at::Tensor head_local(Kind kind) const {
    const bool is_kv = kind == kK || kind == kV;
    return filled(row(), is_kv ? mine().num_kv_heads() : mine().num_query_heads(), kHeadDim, type,
                  [&](std::int64_t row, std::int64_t head, std::int64_t dim) {
                    const std::int64_t model_head =
                        is_kv ? mine().groups[static_cast<std::size_t>(head)].kv_head
                              : mine().query_heads.begin + head;
                    return hashed(kind, row, model_head, dim, type);
                  });
  }
  /// Gradient of this rank's heads: differs between copies of a KV head, so a missing copy shows. ≤
  /// 16, so that sums of copies are exact in bf16.
  static double copy_gradient(std::int64_t kind, int rank, std::int64_t token, std::int64_t head,
                              std::int64_t dim) {
    return static_cast<double>((kind * 7 + rank * 5 + token * 3 + head * 11 + dim) % 16 + 1);
  }
  [[nodiscard]] at::Tensor head_gradient(Kind kind) const {
    const bool is_kv = kind == kK || kind == kV;
    return filled(row(), is_kv ? mine().num_kv_heads() : mine().num_query_heads(), kHeadDim, type,
                  [&](std::int64_t row, std::int64_t head, std::int64_t dim) {
                    const std::int64_t model_head =
                        is_kv ? mine().groups[static_cast<std::size_t>(head)].kv_head
                              : mine().query_heads.begin + head;
                    return copy_gradient(kind, rank, row, model_head, dim);
                  });
  }
  /// The sum over all ranks that hold a head, for this rank's tokens.
  [[nodiscard]] at::Tensor summed_gradient(Kind kind) const {
    const bool is_kv = kind == kK || kind == kV;
    return filled(my_tokens().size(), is_kv ? layout.num_kv : layout.num_q, kHeadDim, type,
                  [&](std::int64_t row, std::int64_t head, std::int64_t dim) {
                    double sum = 0;
                    for (std::size_t peer = 0; peer < heads.size(); ++peer) {
                      if (holds(heads[peer], is_kv, head)) {
                        sum += copy_gradient(kind, static_cast<int>(peer), my_tokens().begin + row,
                                             head, dim);
                      }
                    }
                    return sum;
                  });
  }
  static bool holds(const RankHeads& rank, bool is_kv, std::int64_t head) {
    if (!is_kv) {
      return head >= rank.query_heads.begin && head < rank.query_heads.end;
    }
    for (const config::HeadGroup& group : rank.groups) {
      if (group.kv_head == head) {
        return true;
      }
    }
    return false;
  }
};

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

template <typename Exchange = UlyssesExchange>
bool forward_is_exact(Communicator& comm, const Bench& bench) {
  Exchange exchange(comm, bench.heads, kHeadDim);
  exchange.set_row(bench.tokens);
  const Qkv head = exchange.seq_to_head_qkv(
      {.q = bench.local(kQ), .k = bench.local(kK), .v = bench.local(kV), .fused = {}});
  const at::Tensor o = exchange.head_to_seq(bench.head_local(kO));
  return at::equal(head.q, bench.head_local(kQ)) && at::equal(head.k, bench.head_local(kK)) &&
         at::equal(head.v, bench.head_local(kV)) && at::equal(o, bench.local(kO));
}

template <typename Exchange = UlyssesExchange>
bool backward_is_exact(Communicator& comm, const Bench& bench) {
  Exchange exchange(comm, bench.heads, kHeadDim);
  exchange.set_row(bench.tokens);
  const at::Tensor d_o = exchange.head_to_seq_backward(bench.local(kO));
  const Qkv local = exchange.seq_to_head_qkv_backward({.q = bench.head_gradient(kQ),
                                                       .k = bench.head_gradient(kK),
                                                       .v = bench.head_gradient(kV),
                                                       .fused = {}});
  return at::equal(d_o, bench.head_local(kO)) && at::equal(local.q, bench.summed_gradient(kQ)) &&
         at::equal(local.k, bench.summed_gradient(kK)) &&
         at::equal(local.v, bench.summed_gradient(kV));
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

TEST(Ulysses, FailsWhenTheExchangeIsIdentity) {
  const auto identity = [](auto check) {
    return [check](Communicator& comm, const Bench& bench) {
      dist_test::IdentityExchange broken(comm);
      return check(broken, bench);
    };
  };
  EXPECT_GT(for_all_cases(at::kFloat, kLayouts, identity(forward_is_exact<>)), 0);
  EXPECT_GT(for_all_cases(at::kFloat, kLayouts, identity(backward_is_exact<>)), 0);
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
