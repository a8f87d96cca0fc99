// Loss and head gradients against autograd in fp64 and against finite differences; tiles.
#include "model/lm_head.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/recording_sink.h"
#include "text/tokenized_sample.h"

namespace longhaul {
namespace {

using testing::RecordingSink;
using text::kNoLabel;

constexpr double kEps = 1e-5;
constexpr model::HeadSettings kSettings{.norm_eps = kEps};
enum : std::int64_t { kEmbedding = 0, kNorm = 1, kHead = 2 };

model::EndWeights make_ends(std::int64_t vocab, std::int64_t hidden) {
  model::EndWeights ends;
  ends.embedding = at::zeros({vocab, hidden});
  ends.final_norm = {at::randn({hidden}) * 0.3 + 1, kNorm};
  ends.head = at::randn({vocab, hidden}) * 0.5;
  ends.head_param = kHead;
  return ends;
}

RecordingSink make_sink(const model::EndWeights& ends) {
  return RecordingSink({{kEmbedding, ends.head.sizes().vec()},
                        {kNorm, ends.final_norm.weight.sizes().vec()},
                        {kHead, ends.head.sizes().vec()}});
}

/// Loss of the plain formula in fp64 with gradients of hidden, norm and head.
struct Oracle {
  Oracle(const at::Tensor& h, const std::vector<std::int32_t>& labels,
         const model::EndWeights& ends, double scale) {
    const auto leaf = [](const at::Tensor& tensor) {
      return tensor.to(at::kDouble).clone().requires_grad_(true);
    };
    hidden = leaf(h);
    norm = leaf(ends.final_norm.weight);
    head = leaf(ends.head);
    std::vector<std::int64_t> rows;
    std::vector<std::int64_t> targets;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] != kNoLabel) {
        rows.push_back(static_cast<std::int64_t>(i));
        targets.push_back(labels[i]);
      }
    }
    const at::Tensor x = hidden.index_select(0, at::tensor(rows));
    const at::Tensor y = x * at::rsqrt(x.pow(2).mean(-1, true) + kEps) * norm;
    const at::Tensor logits = at::matmul(y, head.t());
    const at::Tensor loss =
        at::cross_entropy_loss(logits, at::tensor(targets), {}, at::Reduction::Sum);
    sum = loss.item<double>();
    correct = logits.argmax(1).eq(at::tensor(targets)).sum().item<std::int64_t>();
    at::Tensor(loss * scale).backward();
  }
  at::Tensor hidden, norm, head;
  double sum = 0;
  std::int64_t correct = 0;
};

void expect_near(const at::Tensor& got, const at::Tensor& want, double limit) {
  ASSERT_EQ(got.sizes(), want.sizes());
  const double scale = want.to(at::kDouble).abs().max().item<double>();
  EXPECT_LE((got.to(at::kDouble) - want.to(at::kDouble)).abs().max().item<double>(), limit * scale);
}

TEST(LmHead, LossAndGradientsEqualAutograd) {
  at::manual_seed(1);
  const model::EndWeights ends = make_ends(31, 9);
  const at::Tensor hidden = at::randn({8, 9});
  const std::vector<std::int32_t> labels = {kNoLabel, 30, 0, kNoLabel, 7, 7, 1, kNoLabel};
  const Oracle want(hidden, labels, ends, 0.2);
  RecordingSink sink = make_sink(ends);
  const model::HeadBackward got =
      model::head_loss_backward(hidden, labels, ends, kSettings, 0.2, true, sink);
  EXPECT_EQ(got.loss.target_tokens, 5);
  EXPECT_EQ(got.loss.correct, want.correct);
  EXPECT_NEAR(got.loss.sum, want.sum, 1e-6 * want.sum);
  expect_near(got.dhidden, want.hidden.grad(), 5e-6);
  expect_near(sink.sums().at(kNorm), want.norm.grad(), 5e-6);
  expect_near(sink.sums().at(kHead), want.head.grad(), 5e-6);
  EXPECT_TRUE(got.dhidden.select(0, 0).eq(0).all().item<bool>());  // no target, no gradient
  EXPECT_TRUE(got.dhidden.select(0, 7).eq(0).all().item<bool>());
  const model::LossSum alone = model::head_loss(hidden, labels, ends, kSettings);
  EXPECT_EQ(alone.sum, got.loss.sum);
  EXPECT_EQ(alone.correct, got.loss.correct);
  EXPECT_EQ(alone.target_tokens, got.loss.target_tokens);
}

TEST(LmHead, GradientEqualsFiniteDifferencesOfTheLossAlone) {
  at::manual_seed(2);
  const model::EndWeights ends = make_ends(17, 6);
  const at::Tensor hidden = at::randn({4, 6});
  const std::vector<std::int32_t> labels = {3, kNoLabel, 16, 0};
  RecordingSink sink = make_sink(ends);
  const model::HeadBackward got =
      model::head_loss_backward(hidden, labels, ends, kSettings, 1, true, sink);
  const double step = 1e-2;
  for (int direction = 0; direction < 5; ++direction) {
    const at::Tensor d = at::randn({4, 6});
    const double up = model::head_loss(hidden + d * step, labels, ends, kSettings).sum;
    const double down = model::head_loss(hidden - d * step, labels, ends, kSettings).sum;
    const double slope = (got.dhidden * d).sum().item<double>();
    EXPECT_NEAR((up - down) / (2 * step), slope, 2e-3 * std::max(1.0, std::abs(slope)));
  }
}

/// 2²⁰ columns of fp32 make tiles of 16 rows.
TEST(LmHead, BordersOfTilesDoNotShow) {
  at::manual_seed(3);
  constexpr std::int64_t kVocab = 1 << 20;
  ASSERT_EQ(config::logits_tile_rows(kVocab, 4), 16);
  const model::EndWeights ends = make_ends(kVocab, 3);
  const at::Tensor hidden = at::randn({36, 3});
  std::vector<std::int32_t> labels(36);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::int32_t>(i * 29000);
  }
  labels[4] = kNoLabel;
  RecordingSink whole = make_sink(ends);
  const model::HeadBackward all =
      model::head_loss_backward(hidden, labels, ends, kSettings, 0.5, true, whole);
  EXPECT_EQ(all.loss.target_tokens, 35);
  RecordingSink parts = make_sink(ends);
  double sum = 0;
  std::int64_t correct = 0;
  std::vector<at::Tensor> dhidden;
  for (std::int64_t begin = 0; begin < 36; begin += 9) {
    const auto mine = std::span(labels).subspan(static_cast<std::size_t>(begin), 9);
    const model::HeadBackward part = model::head_loss_backward(hidden.narrow(0, begin, 9), mine,
                                                               ends, kSettings, 0.5, true, parts);
    sum += part.loss.sum;
    correct += part.loss.correct;
    dhidden.push_back(part.dhidden);
  }
  EXPECT_NEAR(all.loss.sum, sum, 1e-7 * sum);
  EXPECT_EQ(all.loss.correct, correct);
  expect_near(all.dhidden, at::cat(dhidden, 0), 2e-6);
  expect_near(whole.sums().at(kHead), parts.sums().at(kHead), 2e-6);
  expect_near(whole.sums().at(kNorm), parts.sums().at(kNorm), 2e-5);

  RecordingSink one_tile = make_sink(ends);
  const model::HeadBackward untiled = model::head_loss_backward(
      hidden, labels, ends, {.norm_eps = kEps, .tile_rows = 35}, 0.5, true, one_tile);
  EXPECT_NEAR(all.loss.sum, untiled.loss.sum, 1e-7 * sum);
  expect_near(all.dhidden, untiled.dhidden, 2e-6);
}

TEST(LmHead, WithoutTargetsEverythingIsZero) {
  at::manual_seed(4);
  const model::EndWeights ends = make_ends(12, 5);
  for (const std::int64_t rows : {0, 3}) {
    const at::Tensor hidden = at::full({rows, 5}, NAN);
    const std::vector<std::int32_t> labels(static_cast<std::size_t>(rows), kNoLabel);
    RecordingSink sink = make_sink(ends);
    const model::HeadBackward got =
        model::head_loss_backward(hidden, labels, ends, kSettings, 0.1, true, sink);
    EXPECT_EQ(got.loss.sum, 0);
    EXPECT_EQ(got.loss.target_tokens, 0);
    EXPECT_TRUE(got.dhidden.eq(0).all().item<bool>());
    for (const auto& [param, sum] : sink.sums()) {
      EXPECT_TRUE(sum.eq(0).all().item<bool>()) << param;
    }
    EXPECT_EQ(sink.finished_counts().at(kHead), 1);
    EXPECT_EQ(sink.finished_counts().at(kNorm), 1);
    EXPECT_EQ(model::head_loss(hidden, labels, ends, kSettings).sum, 0);
  }
}

TEST(LmHead, MakesOnlyTheGradientsThatAreWanted) {
  at::manual_seed(5);
  model::EndWeights ends = make_ends(12, 5);
  const at::Tensor hidden = at::randn({3, 5});
  const std::vector<std::int32_t> labels = {1, 2, 3};
  ends.head_param = -1;
  ends.final_norm.param = -1;
  RecordingSink nothing({});
  EXPECT_TRUE(model::head_loss_backward(hidden, labels, ends, kSettings, 1, true, nothing)
                  .dhidden.defined());
  EXPECT_TRUE(nothing.sums().empty());
  ends.final_norm.param = kNorm;
  RecordingSink norm = make_sink(ends);
  EXPECT_FALSE(
      model::head_loss_backward(hidden, labels, ends, kSettings, 1, false, norm).dhidden.defined());
  const Oracle want(hidden, labels, ends, 1);
  expect_near(norm.sums().at(kNorm), want.norm.grad(), 5e-6);
}

TEST(LmHead, ATiedHeadIsNotFinishedBeforeTheEmbedding) {
  at::manual_seed(6);
  model::EndWeights ends = make_ends(12, 5);
  ends.embedding_param = kEmbedding;
  ends.head_param = kEmbedding;
  RecordingSink sink = make_sink(ends);
  model::head_loss_backward(at::randn({2, 5}), std::vector<std::int32_t>{1, 2}, ends, kSettings, 1,
                            true, sink);
  EXPECT_FALSE(sink.finished_counts().contains(kEmbedding));
  EXPECT_GT(sink.sums().at(kEmbedding).abs().sum().item<double>(), 0);
}

TEST(LmHead, InBfloat16StaysNearTheExactLoss) {
  at::manual_seed(7);
  model::EndWeights ends = make_ends(50, 16);
  ends.final_norm.weight = ends.final_norm.weight.to(at::kBFloat16);
  ends.head = ends.head.to(at::kBFloat16);
  const at::Tensor hidden = at::randn({20, 16}).to(at::kBFloat16);
  std::vector<std::int32_t> labels(20);
  for (std::size_t i = 0; i < 20; ++i) {
    labels[i] = static_cast<std::int32_t>(i * 2);
  }
  const Oracle want(hidden, labels, ends, 1);
  RecordingSink sink = make_sink(ends);
  const model::HeadBackward got =
      model::head_loss_backward(hidden, labels, ends, kSettings, 1, true, sink);
  EXPECT_NEAR(got.loss.sum, want.sum, 5e-3 * want.sum);
  EXPECT_EQ(sink.sums().at(kHead).scalar_type(), at::kFloat);
  expect_near(sink.sums().at(kHead), want.head.grad(), 0.03);
  expect_near(got.dhidden, want.hidden.grad(), 0.03);
}

}  // namespace
}  // namespace longhaul
