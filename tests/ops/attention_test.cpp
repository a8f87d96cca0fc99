// The fused attention of one rank against the plain formula in fp64 with libtorch's autograd.
#include "ops/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/attention_views.h"

namespace longhaul::ops {
namespace {

using Borders = std::vector<std::int32_t>;

/// The heads of rank `rank` of `ranks` for a model with hq query and hk KV heads.
struct Heads {
  Heads(std::int64_t hq, std::int64_t hk, std::int64_t ranks, std::size_t rank, std::int64_t dim)
      : mine(config::split_heads(hq, hk, ranks)[rank]) {
    shape = {.num_query_heads = mine.num_query_heads(),
             .num_kv_heads = mine.num_kv_heads(),
             .head_dim = dim,
             .runs = config::equal_ratio_runs(mine)};
  }
  /// Local KV head of local query head `query`.
  [[nodiscard]] std::int64_t kv_of(std::int64_t query) const {
    const std::int64_t global = mine.query_heads.begin + query;
    std::int64_t local = 0;
    while (global >= mine.groups[static_cast<std::size_t>(local)].query_heads.end) {
      ++local;
    }
    return local;
  }
  [[nodiscard]] std::int64_t qkv_width() const {
    return (shape.num_query_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  }
  config::RankHeads mine;
  AttentionShape shape;
};

/// Softmax(q·kᵀ/√d)·v per document and head; both results [T, …].
AttentionOutput plain_attention(const at::Tensor& qkv, const Heads& heads, const Borders& borders) {
  const std::int64_t nq = heads.shape.num_query_heads;
  const std::int64_t nk = heads.shape.num_kv_heads;
  const std::int64_t d = heads.shape.head_dim;
  std::vector<at::Tensor> out_documents;
  std::vector<at::Tensor> lse_documents;
  for (std::size_t doc = 0; doc + 1 < borders.size(); ++doc) {
    const std::int64_t n = borders[doc + 1] - borders[doc];
    const at::Tensor rows = qkv.narrow(0, borders[doc], n);
    const at::Tensor hidden = at::ones({n, n}, at::kBool).triu(1);
    std::vector<at::Tensor> outs;
    std::vector<at::Tensor> lses;
    for (std::int64_t query = 0; query < nq; ++query) {
      const std::int64_t kv = heads.kv_of(query);
      const at::Tensor q = rows.narrow(1, query * d, d);
      const at::Tensor k = rows.narrow(1, (nq + kv) * d, d);
      const at::Tensor v = rows.narrow(1, (nq + nk + kv) * d, d);
      const at::Tensor scores =
          (at::matmul(q, k.t()) / std::sqrt(static_cast<double>(d))).masked_fill(hidden, -INFINITY);
      outs.push_back(at::matmul(at::softmax(scores, 1), v));
      lses.push_back(at::logsumexp(scores, {1}).unsqueeze(1));
    }
    out_documents.push_back(at::cat(outs, 1));
    lse_documents.push_back(at::cat(lses, 1));
  }
  return {at::cat(out_documents, 0), at::cat(lse_documents, 0)};
}

double relative_error(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor reference = want.to(at::kDouble);
  return (got.to(at::kDouble) - reference).norm().item<double>() /
         std::max(reference.norm().item<double>(), 1e-30);
}

struct Case {
  std::string name;
  std::int64_t hq;
  std::int64_t hk;
  std::int64_t ranks;
  std::size_t rank;
  std::int64_t head_dim;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

class Attention : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] static Heads heads() {
    const Case& c = GetParam();
    return {c.hq, c.hk, c.ranks, c.rank, c.head_dim};
  }
};

INSTANTIATE_TEST_SUITE_P(
    Heads, Attention,
    ::testing::Values(Case{"one_head", 1, 1, 1, 0, 8}, Case{"as_many_kv_heads", 4, 4, 1, 0, 6},
                      Case{"grouped", 8, 2, 1, 0, 16}, Case{"three_kv_heads", 6, 3, 1, 0, 32},
                      Case{"split_group", 6, 2, 4, 1, 10}, Case{"uneven_runs_5_2", 9, 3, 2, 0, 4},
                      Case{"uneven_runs_4_2", 9, 3, 2, 1, 64}),
    [](const auto& test) { return test.param.name; });

const Borders kRows[] = {{0, 1}, {0, 17}, {0, 1, 3, 20}, {0, 17, 18, 20, 21}, {0, 140, 141}};

TEST_P(Attention, EqualsThePlainFormulaAndItsAutogradForEveryRow) {
  const Heads mine = heads();
  for (const Borders& borders : kRows) {
    at::manual_seed(1);
    const std::int64_t tokens = borders.back();
    const at::Tensor qkv = at::randn({tokens, mine.qkv_width()});
    const at::Tensor dout = at::randn({tokens, mine.shape.num_query_heads * mine.shape.head_dim});
    const at::Tensor exact = qkv.to(at::kDouble).requires_grad_(true);
    const AttentionOutput want = plain_attention(exact, mine, borders);
    want.out.backward(dout.to(at::kDouble));

    const AttentionOutput got = attention_forward(qkv, mine.shape, borders);
    const at::Tensor dqkv = attention_backward(dout, qkv, got, mine.shape, borders);
    EXPECT_EQ(got.out.sizes(), want.out.sizes());
    EXPECT_EQ(got.lse.sizes(), want.lse.sizes());
    EXPECT_LE(relative_error(got.out, want.out.detach()), 2e-6) << tokens;
    EXPECT_LE(relative_error(got.lse, want.lse.detach()), 2e-6) << tokens;
    EXPECT_LE(relative_error(dqkv, exact.grad()), 5e-6) << tokens;
  }
}

TEST_P(Attention, InBfloat16StaysWithinTheRoundingOfItsOperands) {
  const Heads mine = heads();
  const Borders borders = {0, 2, 19};
  at::manual_seed(2);
  const at::Tensor qkv = at::randn({19, mine.qkv_width()}).to(at::kBFloat16);
  const at::Tensor dout =
      at::randn({19, mine.shape.num_query_heads * mine.shape.head_dim}).to(at::kBFloat16);
  const at::Tensor exact = qkv.to(at::kDouble).requires_grad_(true);
  const AttentionOutput want = plain_attention(exact, mine, borders);
  want.out.backward(dout.to(at::kDouble));
  const AttentionOutput got = attention_forward(qkv, mine.shape, borders);
  EXPECT_EQ(got.lse.scalar_type(), at::kFloat);
  EXPECT_LE(relative_error(got.out, want.out.detach()), 2 * 0x1.0p-8);
  EXPECT_LE(relative_error(attention_backward(dout, qkv, got, mine.shape, borders), exact.grad()),
            4 * 0x1.0p-8);
}

TEST_P(Attention, ReadsRowsOfAWiderMatrix) {
  const Heads mine = heads();
  const Borders borders = {0, 3, 11};
  at::manual_seed(3);
  const at::Tensor wide = at::randn({11, mine.qkv_width() + 13});
  const at::Tensor view = wide.narrow(1, 5, mine.qkv_width());
  const at::Tensor dwide = at::randn({11, mine.shape.num_query_heads * mine.shape.head_dim + 3});
  const at::Tensor dview = dwide.narrow(1, 3, dwide.size(1) - 3);
  const AttentionOutput got = attention_forward(view, mine.shape, borders);
  const AttentionOutput want = attention_forward(view.contiguous(), mine.shape, borders);
  // Another alignment may round another way in BLAS, nothing more.
  EXPECT_LE(relative_error(got.out, want.out), 1e-6);
  EXPECT_LE(relative_error(got.lse, want.lse), 1e-6);
  const at::Tensor dqkv = attention_backward(dview, view, got, mine.shape, borders);
  EXPECT_LE(relative_error(dqkv, attention_backward(dview.contiguous(), view.contiguous(), want,
                                                    mine.shape, borders)),
            2e-6);
}

TEST_P(Attention, GivesTheSameBitsInAnyNumberOfHeadGroups) {
  Heads mine = heads();
  for (const Borders& borders : kRows) {
    at::manual_seed(6);
    const std::int64_t tokens = borders.back();
    const at::Tensor qkv = at::randn({tokens, mine.qkv_width()});
    const at::Tensor dout = at::randn({tokens, mine.shape.num_query_heads * mine.shape.head_dim});
    mine.shape.groups = 1;
    const AttentionOutput want = attention_forward(qkv, mine.shape, borders);
    const at::Tensor want_gradient = attention_backward(dout, qkv, want, mine.shape, borders);
    for (std::int64_t groups = 2; groups <= mine.shape.num_kv_heads; ++groups) {
      mine.shape.groups = groups;
      const AttentionOutput got = attention_forward(qkv, mine.shape, borders);
      const at::Tensor gradient = attention_backward(dout, qkv, got, mine.shape, borders);
      // Heads that are no whole 64-byte pieces lie otherwise aligned in a group's own buffers, and
      // BLAS may round another way (which results that shows in depends on the processor).
      const bool aligned = mine.shape.head_dim % 16 == 0;
      const auto same = [&](const at::Tensor& a, const at::Tensor& b) {
        return aligned ? a.equal(b) : relative_error(a, b) <= 1e-6;
      };
      EXPECT_TRUE(same(got.out, want.out)) << groups;
      EXPECT_TRUE(same(got.lse, want.lse)) << groups;
      EXPECT_TRUE(same(gradient, want_gradient)) << groups;
    }
  }
}

TEST_P(Attention, WritesItsGradientOverItsInput) {
  Heads mine = heads();
  const Borders borders = {0, 17, 18, 40};
  at::manual_seed(7);
  const at::Tensor qkv = at::randn({40, mine.qkv_width()});
  const at::Tensor dout = at::randn({40, mine.shape.num_query_heads * mine.shape.head_dim});
  for (const std::int64_t groups : {std::int64_t{1}, mine.shape.num_kv_heads}) {
    mine.shape.groups = groups;
    const AttentionOutput forward = attention_forward(qkv, mine.shape, borders);
    const at::Tensor want = attention_backward(dout, qkv, forward, mine.shape, borders);
    const at::Tensor place = qkv.clone();
    attention_backward(dout, place, forward, mine.shape, borders, place);
    EXPECT_TRUE(place.equal(want)) << groups;
  }
}

TEST_P(Attention, ADocumentIsBlindToTheOthersAndATokenToLaterOnes) {
  const Heads mine = heads();
  const Borders borders = {0, 7, 18, 21};
  at::manual_seed(4);
  const at::Tensor qkv = at::randn({21, mine.qkv_width()});
  const at::Tensor dout = at::randn({21, mine.shape.num_query_heads * mine.shape.head_dim});
  const AttentionOutput before = attention_forward(qkv, mine.shape, borders);
  const at::Tensor d_before = attention_backward(dout, qkv, before, mine.shape, borders);
  at::Tensor other = qkv.clone();
  other.narrow(0, 0, 7).mul_(-3).add_(1);  // the whole first document
  other.narrow(0, 20, 1).mul_(2);          // the last token of the third
  const AttentionOutput after = attention_forward(other, mine.shape, borders);
  const at::Tensor d_after = attention_backward(dout, other, after, mine.shape, borders);
  EXPECT_FALSE(after.out.narrow(0, 0, 7).equal(before.out.narrow(0, 0, 7)));
  EXPECT_TRUE(after.out.narrow(0, 7, 13).equal(before.out.narrow(0, 7, 13)));
  EXPECT_TRUE(after.lse.narrow(0, 7, 13).equal(before.lse.narrow(0, 7, 13)));
  EXPECT_TRUE(d_after.narrow(0, 7, 11).equal(d_before.narrow(0, 7, 11)));
}

TEST_P(Attention, SurvivesScoresOfTenThousand) {
  const Heads mine = heads();
  const Borders borders = {0, 9};
  at::manual_seed(5);
  const at::Tensor qkv = at::randn({9, mine.qkv_width()}) * 150;
  const at::Tensor exact = qkv.to(at::kDouble);
  const AttentionOutput want = plain_attention(exact, mine, borders);
  const AttentionOutput got = attention_forward(qkv, mine.shape, borders);
  EXPECT_LE(relative_error(got.out, want.out), 1e-4);
  EXPECT_LE(relative_error(got.lse, want.lse), 1e-6);
  const at::Tensor dqkv = attention_backward(got.out, qkv, got, mine.shape, borders);
  EXPECT_TRUE(dqkv.isfinite().all().item<bool>());
}

/// (first query head, query heads, first KV head, KV heads) of every run.
std::vector<std::vector<std::int64_t>> cuts(const std::vector<config::HeadRun>& runs,
                                            std::int64_t groups) {
  std::vector<std::vector<std::int64_t>> result;
  for (const config::HeadRun& run : cut_runs(runs, groups)) {
    result.push_back({run.local_query_heads.begin, run.local_query_heads.size(),
                      run.local_kv_heads.begin, run.local_kv_heads.size()});
  }
  return result;
}

TEST(AttentionShapes, GroupsHoldWholeKvHeadsAsEvenlyAsPossible) {
  using Cuts = std::vector<std::vector<std::int64_t>>;
  const std::vector<config::HeadRun> even = {{{0, 28}, {0, 4}}};
  EXPECT_EQ(cuts(even, 1), (Cuts{{0, 28, 0, 4}}));
  EXPECT_EQ(cuts(even, 2), (Cuts{{0, 14, 0, 2}, {14, 14, 2, 2}}));
  EXPECT_EQ(cuts(even, 3), (Cuts{{0, 7, 0, 1}, {7, 7, 1, 1}, {14, 14, 2, 2}}));
  // Two runs of different ratio: a group that spans the border is two calls.
  const std::vector<config::HeadRun> uneven = {{{0, 6}, {0, 2}}, {{6, 7}, {2, 3}}};
  EXPECT_EQ(cuts(uneven, 1), (Cuts{{0, 6, 0, 2}, {6, 1, 2, 1}}));
  EXPECT_EQ(cuts(uneven, 2), (Cuts{{0, 3, 0, 1}, {3, 3, 1, 1}, {6, 1, 2, 1}}));
  EXPECT_THROW(cut_runs(even, 5), base::InternalError);
  EXPECT_THROW(cut_runs(even, 0), base::InternalError);
}

TEST(AttentionShapes, ARehearsalComputesTheFirstRowsAndHoldsTheOthersMemory) {
  Heads mine(4, 2, 1, 0, 8);
  at::manual_seed(7);
  const at::Tensor qkv = at::randn({40, mine.qkv_width()});
  const at::Tensor dout = at::randn({40, 32});
  const Borders first = {0, 7, 10};
  const AttentionOutput want = attention_forward(qkv.narrow(0, 0, 10), mine.shape, first);
  const at::Tensor dwant =
      attention_backward(dout.narrow(0, 0, 10), qkv.narrow(0, 0, 10), want, mine.shape, first);
  mine.shape.rehearsal = {.one_in = 4, .kernel_bytes_per_row = 3};
  const Borders borders = {0, 7, 30, 40};
  const AttentionOutput got = attention_forward(qkv, mine.shape, borders);
  EXPECT_TRUE(at::equal(got.out.narrow(0, 0, 10), want.out));
  EXPECT_TRUE(at::equal(got.lse.narrow(0, 0, 10), want.lse));
  EXPECT_EQ(got.out.narrow(0, 10, 30).abs().max().item<float>(), 0);
  at::Tensor dqkv = qkv.clone();
  dqkv =
      attention_backward(dout, dqkv, got, mine.shape, borders, dqkv);  // in place, as training does
  EXPECT_TRUE(at::equal(dqkv.narrow(0, 0, 10), dwant));
  EXPECT_EQ(dqkv.narrow(0, 10, 30).abs().max().item<float>(), 0);
}

TEST(AttentionShapes, ARowWithoutTokensGivesNothing) {
  const Heads mine(9, 3, 2, 0, 4);
  const at::Tensor qkv = at::empty({0, mine.qkv_width()});
  const AttentionOutput got = attention_forward(qkv, mine.shape, Borders{0});
  EXPECT_EQ(got.out.sizes(), (std::vector<std::int64_t>{0, 20}));
  EXPECT_EQ(attention_backward(got.out, qkv, got, mine.shape, Borders{0}).size(0), 0);
}

TEST(AttentionShapes, DocumentsThatDoNotCoverTheRowAreABug) {
  const Heads mine(4, 2, 1, 0, 4);
  const at::Tensor qkv = at::zeros({5, mine.qkv_width()});
  EXPECT_THROW(attention_forward(qkv, mine.shape, Borders{0, 4}), base::InternalError);
  EXPECT_THROW(attention_forward(qkv, mine.shape, Borders{}), base::InternalError);
  EXPECT_THROW(attention_forward(at::zeros({5, 12}), mine.shape, Borders{0, 5}),
               base::InternalError);
}

}  // namespace
}  // namespace longhaul::ops
