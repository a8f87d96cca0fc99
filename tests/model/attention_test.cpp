// Attention as a layer sees it: several ranks against one, what the slots hold, and gradients of
// the q/k norms.
#include "model/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "dist/comm_threads.h"
#include "dist/shard.h"
#include "model/recording_sink.h"
#include "model/row_parts.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using model::AttentionSlots;

data::PackedBatch the_row() {
  return testing::make_row(
      {testing::make_document(7, 1, 50, 1), testing::make_document(1, 1, 50, 2),
       testing::make_document(5, 1, 50, 3)},
      0);
}

constexpr std::int64_t kTokens = 13;

/// Inputs of a whole row; the ranks take their parts.
struct Inputs {
  explicit Inputs(const config::ModelConfig& model) {
    at::manual_seed(1);
    const std::int64_t d = model.head_dim;
    qkv = at::randn({kTokens, model.q_width() + 2 * model.kv_width()});
    dout = at::randn({kTokens, model.q_width()});
    if (model.qk_norm) {
      norm = {at::randn({d}) * 0.3 + 1, at::randn({d}) * 0.3 + 1, 0, 1};
    }
  }
  at::Tensor qkv;
  at::Tensor dout;
  model::QkNormWeights norm;
};

/// Attention of one rank, its part of the row set.
struct RankAttention {
  RankAttention(const config::ModelConfig& model, dist::Communicator& comm)
      : exchange(comm, config::split_heads(model.num_heads, model.num_kv_heads, comm.size()),
                 model.head_dim),
        attention(model, exchange),
        batch(dist::shard_row(the_row(), comm.size(), comm.rank())),
        context(batch, model, {}) {
    attention.set_row(context);
  }
  dist::UlyssesExchange exchange;
  model::UlyssesAttention attention;
  dist::LocalBatch batch;
  model::RowContext context;
};

void load(model::Attention& attention, const at::Tensor& qkv, const model::QkNormWeights& norm,
          const model::RowContext& context, AttentionSlots& slots) {
  attention.load_qkv([&](model::LocalRows rows) { return model::of_rows(qkv, rows); }, qkv, norm,
                     context, slots);
}

/// Parts of `columns` columns joined; every row comes once, in order.
class Joined {
 public:
  model::UseRows use() {
    return [this](model::LocalRows rows, const at::Tensor& values) {
      EXPECT_EQ(rows.begin, end_);
      EXPECT_EQ(rows.size(), values.size(0));
      end_ = rows.end;
      parts_.push_back(values.clone());
    };
  }
  [[nodiscard]] at::Tensor rows() const { return at::cat(parts_, 0); }

 private:
  std::int64_t end_ = 0;
  std::vector<at::Tensor> parts_;
};

at::Tensor output_of(model::Attention& attention, const AttentionSlots& slots, std::int64_t rows) {
  Joined joined;
  attention.token_local_output(slots, 3, joined.use());
  EXPECT_EQ(joined.rows().size(0), rows);
  return joined.rows();
}

at::Tensor backward(RankAttention& here, const at::Tensor& dout, const model::QkNormWeights& norm,
                    AttentionSlots& slots, model::GradSink& sink) {
  Joined joined;
  int beside = 0;
  const at::Tensor narrow = dout.narrow(1, 0, 3);
  here.attention.backward(
      {.make_dout = [&](model::LocalRows rows) { return model::of_rows(dout, rows).clone(); },
       .du = narrow,
       .use_du =
           [&](const at::Tensor& all) {
             EXPECT_TRUE(all.equal(here.exchange.gather_tokens(narrow)));
           },
       .beside = [&] { ++beside; },
       .use_dqkv = joined.use(),
       .after_dqkv = [&](const at::Tensor& dqkv) { EXPECT_TRUE(dqkv.equal(joined.rows())); },
       .before_use = [&] { ++beside; },
       .dqkv_room = 5},
      dout, norm, here.context, slots, sink);
  EXPECT_EQ(beside, 2);
  return joined.rows();
}

/// Everything that the ranks together make, token-local parts joined.
struct Outcome {
  at::Tensor out;
  at::Tensor dqkv;
  at::Tensor dq_norm;
  at::Tensor dk_norm;
  std::vector<config::Range> columns;
};

Outcome run(const std::string& name, int ranks) {
  const config::ModelConfig model = testing::tiny_model(name);
  const Inputs in(model);
  std::vector<at::Tensor> outs(static_cast<std::size_t>(ranks));
  std::vector<at::Tensor> gradients(outs.size());
  Outcome outcome;
  outcome.columns.resize(outs.size());
  outcome.dq_norm = at::zeros({model.head_dim});
  outcome.dk_norm = at::zeros({model.head_dim});
  std::mutex mutex;
  dist::run_ranks(ranks, [&](dist::Communicator& comm) {
    at::set_num_threads(1);
    RankAttention here(model, comm);
    model::UlyssesAttention& attention = here.attention;
    const dist::LocalBatch& batch = here.batch;
    const model::RowContext& context = here.context;
    const auto mine = [&](const at::Tensor& rows) {
      return rows.narrow(0, batch.my_tokens.begin, batch.my_tokens.size()).clone();
    };
    AttentionSlots slots;
    load(attention, mine(in.qkv), in.norm, context, slots);
    attention.attend(in.norm, context, slots);
    EXPECT_EQ(slots.out.size(0), kTokens);
    EXPECT_EQ(slots.out.size(1), attention.output_columns().size());
    const at::Tensor out = output_of(attention, slots, batch.my_tokens.size());
    testing::RecordingSink sink({{0, {model.head_dim}}, {1, {model.head_dim}}});
    const at::Tensor dqkv = backward(here, mine(in.dout), in.norm, slots, sink);
    EXPECT_FALSE(slots.qkv.defined() || slots.out.defined() || slots.lse.defined());
    const at::Tensor all = here.exchange.gather_tokens(mine(in.dout).narrow(1, 0, 3).contiguous());
    EXPECT_TRUE(all.equal(in.dout.narrow(1, 0, 3)));
    const std::lock_guard lock(mutex);
    const auto rank = static_cast<std::size_t>(comm.rank());
    outs[rank] = out;
    gradients[rank] = dqkv;
    outcome.columns[rank] = attention.output_columns();
    if (model.qk_norm) {
      outcome.dq_norm += sink.sums().at(0);
      outcome.dk_norm += sink.sums().at(1);
    }
  });
  outcome.out = at::cat(outs, 0);
  outcome.dqkv = at::cat(gradients, 0);
  return outcome;
}

void expect_near(const at::Tensor& got, const at::Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  EXPECT_LE((got - want).norm().item<double>(), 2e-6 * std::max(want.norm().item<double>(), 1e-6));
}

class UlyssesAttention : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, UlyssesAttention,
                         ::testing::Values("llama", "qwen2", "qwen2_tied", "qwen3", "smol"),
                         [](const auto& test) { return test.param; });

TEST_P(UlyssesAttention, GivesTheSameOnAnyNumberOfRanks) {
  const Outcome one = run(GetParam(), 1);
  for (const int ranks : {2, 3, 4}) {
    const Outcome many = run(GetParam(), ranks);
    expect_near(many.out, one.out);
    expect_near(many.dqkv, one.dqkv);
    expect_near(many.dq_norm, one.dq_norm);
    expect_near(many.dk_norm, one.dk_norm);
    // The ranks' columns lie side by side and cover the output.
    std::int64_t end = 0;
    for (const config::Range& columns : many.columns) {
      EXPECT_EQ(columns.begin, end);
      end = columns.end;
    }
    EXPECT_EQ(end, one.out.size(1));
  }
}

/// slots.qkv of every rank after load_qkv.
std::vector<at::Tensor> loaded(const config::ModelConfig& model, int ranks) {
  const Inputs in(model);
  std::vector<at::Tensor> slots_of_ranks(static_cast<std::size_t>(ranks));
  dist::run_ranks(ranks, [&](dist::Communicator& comm) {
    at::set_num_threads(1);
    RankAttention here(model, comm);
    model::UlyssesAttention& attention = here.attention;
    const dist::LocalBatch& batch = here.batch;
    const model::RowContext& context = here.context;
    AttentionSlots slots;
    load(attention, in.qkv.narrow(0, batch.my_tokens.begin, batch.my_tokens.size()).clone(),
         in.norm, context, slots);
    slots_of_ranks[static_cast<std::size_t>(comm.rank())] = slots.qkv;
  });
  return slots_of_ranks;
}

TEST_P(UlyssesAttention, LoadsTheBitsOfOneRankOnAnyNumberOfRanks) {
  const config::ModelConfig model = testing::tiny_model(GetParam());
  const dist::Qkv one =
      dist::split_qkv(loaded(model, 1).at(0), model.num_heads, model.num_kv_heads, model.head_dim);
  for (const int ranks : {2, 3, 4}) {
    const auto heads = config::split_heads(model.num_heads, model.num_kv_heads, ranks);
    const std::vector<at::Tensor> many = loaded(model, ranks);
    for (std::size_t rank = 0; rank < many.size(); ++rank) {
      const config::Range q = heads[rank].query_heads;
      const config::Range kv = heads[rank].kv_heads();
      const dist::Qkv mine = dist::split_qkv(many[rank], q.size(), kv.size(), model.head_dim);
      EXPECT_TRUE(mine.q.equal(one.q.narrow(1, q.begin, q.size())));
      EXPECT_TRUE(mine.k.equal(one.k.narrow(1, kv.begin, kv.size())));
      EXPECT_TRUE(mine.v.equal(one.v.narrow(1, kv.begin, kv.size())));
    }
  }
}

/// The plain formula in fp64 with autograd for one rank: norms, rotation, causal softmax.
struct Oracle {
  explicit Oracle(const config::ModelConfig& model) {
    const Inputs in(model);
    const auto leaf = [](const at::Tensor& tensor) {
      return tensor.to(at::kDouble).clone().requires_grad_(true);
    };
    qkv = leaf(in.qkv);
    if (model.qk_norm) {
      q_norm = leaf(in.norm.q);
      k_norm = leaf(in.norm.k);
    }
    std::vector<at::Tensor> documents;
    for (const auto& [begin, length] : {std::pair{0, 7}, {7, 1}, {8, 5}}) {
      documents.push_back(document(model, qkv.narrow(0, begin, length)));
    }
    out = at::cat(documents, 0);
    out.backward(in.dout.to(at::kDouble));
  }

  [[nodiscard]] static at::Tensor rotate(const config::ModelConfig& model, const at::Tensor& x) {
    const std::int64_t d = model.head_dim;
    const at::Tensor frequency =
        at::pow(model.rope.theta, at::arange(0, d, 2, at::kDouble) / static_cast<double>(-d));
    const at::Tensor angle = at::outer(at::arange(x.size(0), at::kDouble), frequency).unsqueeze(1);
    const auto half = x.chunk(2, -1);
    return at::cat({half[0] * angle.cos() - half[1] * angle.sin(),
                    half[1] * angle.cos() + half[0] * angle.sin()},
                   -1);
  }

  [[nodiscard]] at::Tensor document(const config::ModelConfig& model,
                                    const at::Tensor& rows) const {
    const std::int64_t n = rows.size(0);
    const std::int64_t d = model.head_dim;
    const auto heads = [&](std::int64_t first, std::int64_t count) {
      return rows.narrow(1, first * d, count * d).reshape({n, count, d});
    };
    const auto normed = [&](const at::Tensor& x, const at::Tensor& weight) {
      return weight.defined() ? x * at::rsqrt(x.pow(2).mean(-1, true) + model.rms_norm_eps) * weight
                              : x;
    };
    const at::Tensor q = rotate(model, normed(heads(0, model.num_heads), q_norm));
    const at::Tensor k = rotate(model, normed(heads(model.num_heads, model.num_kv_heads), k_norm));
    const at::Tensor v = heads(model.num_heads + model.num_kv_heads, model.num_kv_heads);
    std::vector<at::Tensor> outs;
    for (std::int64_t head = 0; head < model.num_heads; ++head) {
      const std::int64_t kv = head / (model.num_heads / model.num_kv_heads);
      const at::Tensor scores =
          (at::matmul(q.select(1, head), k.select(1, kv).t()) / std::sqrt(static_cast<double>(d)))
              .masked_fill(at::ones({n, n}, at::kBool).triu(1), -INFINITY);
      outs.push_back(at::matmul(at::softmax(scores, 1), v.select(1, kv)));
    }
    return at::cat(outs, 1);
  }
  at::Tensor qkv, q_norm, k_norm, out;
};

TEST_P(UlyssesAttention, EqualsThePlainFormulaOnOneRank) {
  const Oracle want(testing::tiny_model(GetParam()));
  const Outcome got = run(GetParam(), 1);
  const auto near = [](const at::Tensor& a, const at::Tensor& b) {
    ASSERT_EQ(a.sizes(), b.sizes());
    EXPECT_LE((a.to(at::kDouble) - b).norm().item<double>(), 5e-6 * b.norm().item<double>());
  };
  near(got.out, want.out.detach());
  near(got.dqkv, want.qkv.grad());
  if (want.q_norm.defined()) {
    near(got.dq_norm, want.q_norm.grad());
    near(got.dk_norm, want.k_norm.grad());
  }
}

TEST(AttentionSlots, HoldQueriesAfterRotationButBeforeANorm) {
  for (const std::string name : {"llama", "qwen3"}) {
    const config::ModelConfig model = testing::tiny_model(name);
    const Inputs in(model);
    const auto comm = dist::make_single();
    RankAttention here(model, *comm);
    model::UlyssesAttention& attention = here.attention;
    const model::RowContext& context = here.context;
    AttentionSlots slots;
    load(attention, in.qkv.clone(), in.norm, context, slots);
    const at::Tensor v = in.qkv.narrow(1, model.q_width() + model.kv_width(), model.kv_width());
    EXPECT_TRUE(slots.qkv.narrow(1, model.q_width() + model.kv_width(), model.kv_width()).equal(v));
    EXPECT_EQ(slots.qkv.equal(in.qkv), model.qk_norm);
    const at::Tensor kept = slots.qkv.clone();
    attention.attend(in.norm, context, slots);
    EXPECT_TRUE(slots.qkv.equal(kept));
    EXPECT_EQ(slots.lse.sizes(), (std::vector<std::int64_t>{kTokens, model.num_heads}));
  }
}

}  // namespace
}  // namespace longhaul
