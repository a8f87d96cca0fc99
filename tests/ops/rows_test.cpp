// The border between tensors and row kernels: what is passed on, and what is refused by name. The
// formulas themselves are tested with the kernels.
#include "ops/rows.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/scratch.h"

namespace longhaul::ops {
namespace {

using ::testing::HasSubstr;

/// Columns [2, 2 + columns) of a wider random matrix.
at::Tensor pitched(std::int64_t rows, std::int64_t columns, at::ScalarType type = at::kFloat) {
  return at::randn({rows, columns + 5}).to(type).narrow(1, 2, columns);
}

void expect_near(const at::Tensor& got, const at::Tensor& want, double limit) {
  ASSERT_EQ(got.sizes(), want.sizes());
  EXPECT_LE((got.to(at::kDouble) - want.to(at::kDouble)).abs().max().item<double>(), limit);
}

template <typename Action>
std::string bug_of(const Action& action) {
  return test::message_of<base::InternalError>(action);
}

TEST(Rows, RmsNormWorksOnGroupsOfPitchedRows) {
  at::manual_seed(1);
  const at::Tensor x = pitched(5, 12);
  const at::Tensor weight = at::randn({4});
  const at::Tensor y = pitched(5, 12);
  const at::Tensor rstd = rms_norm(x, weight, 1e-5, y);
  const at::Tensor groups = x.to(at::kDouble).reshape({5, 3, 4});
  const at::Tensor want_rstd = at::rsqrt(groups.pow(2).mean(-1) + 1e-5);
  expect_near(rstd, want_rstd, 1e-5);
  expect_near(y, (groups * want_rstd.unsqueeze(2) * weight).reshape({5, 12}), 1e-5);
  EXPECT_TRUE(rms_norm(x, weight, 1e-5, at::Tensor()).equal(rstd));
}

TEST(Rows, RmsNormBackwardEqualsAutograd) {
  at::manual_seed(2);
  for (const bool with_add : {false, true}) {
    const at::Tensor x = pitched(6, 10);
    const at::Tensor weight = at::randn({10});
    const at::Tensor dy = pitched(6, 10);
    const at::Tensor add = with_add ? pitched(6, 10) : at::Tensor();
    const at::Tensor exact_x = x.to(at::kDouble).clone().requires_grad_(true);
    const at::Tensor exact_w = weight.to(at::kDouble).clone().requires_grad_(true);
    const at::Tensor y = exact_x * at::rsqrt(exact_x.pow(2).mean(-1, true) + 1e-5) * exact_w;
    y.backward(dy.to(at::kDouble));
    const at::Tensor rstd = rms_norm(x, weight, 1e-5, at::Tensor());
    const at::Tensor dx = pitched(6, 10);
    const at::Tensor dweight = at::zeros({10});
    rms_norm_backward(dy, x, weight, rstd, add, dx, dweight);
    expect_near(dx, with_add ? exact_x.grad() + add : exact_x.grad(), 2e-5);
    expect_near(dweight, exact_w.grad(), 2e-5);
    const at::Tensor frozen = pitched(6, 10);
    rms_norm_backward(dy, x, weight, rstd, add, frozen, at::Tensor());
    EXPECT_TRUE(frozen.equal(dx));
  }
}

TEST(Rows, RopeTableHoldsTheAnglesOfFp32Products) {
  const std::vector<std::int32_t> positions = {0, 1, 5, 100000};
  const std::vector<float> frequencies = {1.0F, 0.31622776F, 1e-4F};
  const RopeTable table = make_rope_table(positions, frequencies);
  ASSERT_EQ(table.cosine.sizes(), (std::vector<std::int64_t>{4, 3}));
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const float angle = static_cast<float>(positions[static_cast<std::size_t>(row)]) *
                          frequencies[static_cast<std::size_t>(i)];
      EXPECT_NEAR(table.cosine[row][i].item<double>(), std::cos(static_cast<double>(angle)), 1e-7);
      EXPECT_NEAR(table.sine[row][i].item<double>(), std::sin(static_cast<double>(angle)), 1e-7);
    }
  }
}

TEST(Rows, RopeRotatesEveryHeadAndBack) {
  at::manual_seed(3);
  const std::vector<std::int32_t> positions = {0, 3, 7};
  const RopeTable table = make_rope_table(positions, std::vector<float>{1.0F, 0.1F});
  const at::Tensor x = pitched(3, 8);  // two heads of four
  const at::Tensor before = x.clone();
  rope(x, table, 4, RopeDirection::kForward);
  const at::Tensor heads = before.reshape({3, 2, 4});
  const at::Tensor turned = at::cat({-heads.narrow(2, 2, 2), heads.narrow(2, 0, 2)}, 2);
  const at::Tensor cosine = at::cat({table.cosine, table.cosine}, 1).unsqueeze(1);
  const at::Tensor sine = at::cat({table.sine, table.sine}, 1).unsqueeze(1);
  expect_near(x, (heads * cosine + turned * sine).reshape({3, 8}), 1e-6);
  rope(x, table, 4, RopeDirection::kInverse);
  expect_near(x, before, 1e-6);
}

TEST(Rows, HeadsAreCopiedAndRotatedInOnePass) {
  at::manual_seed(9);
  const std::vector<std::int32_t> positions = {0, 3, 7};
  const RopeTable table = make_rope_table(positions, std::vector<float>{1.0F, 0.1F});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const RopeDirection direction : {RopeDirection::kForward, RopeDirection::kInverse}) {
      const at::Tensor x = pitched(3, 20, type);  // five heads of four
      const at::Tensor q = pitched(3, 8, type);
      const at::Tensor k = pitched(3, 4, type);
      const at::Tensor v = pitched(3, 8, type);
      const HeadCopy copies[] = {
          {x.narrow(1, 0, 8), q, true}, {x.narrow(1, 16, 4), k, true}, {x.narrow(1, 8, 8), v}};
      copy_heads(copies, 4, table, direction);
      const at::Tensor turned = x.clone();
      rope(turned, table, 4, direction);
      EXPECT_TRUE(q.equal(turned.narrow(1, 0, 8)));
      EXPECT_TRUE(k.equal(turned.narrow(1, 16, 4)));
      EXPECT_TRUE(v.equal(x.narrow(1, 8, 8)));
    }
  }
}

TEST(Rows, HeadsThatAreNotRotatedKeepTheirBitsInAnyType) {
  at::manual_seed(10);
  for (const at::ScalarType type :
       {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kInt}) {
    const at::Tensor x = at::randint(-100, 100, {5, 9}).to(type).narrow(1, 1, 7);
    const at::Tensor y = at::zeros({5, 9}, at::TensorOptions().dtype(type));
    const HeadCopy copies[] = {{x.narrow(1, 0, 3), y.narrow(1, 5, 3)},
                               {x.narrow(1, 3, 4), y.narrow(1, 1, 4)}};
    copy_heads(copies);
    EXPECT_TRUE(y.narrow(1, 5, 3).equal(x.narrow(1, 0, 3)));
    EXPECT_TRUE(y.narrow(1, 1, 4).equal(x.narrow(1, 3, 4)));
    EXPECT_TRUE(y.select(1, 0).eq(0).all().item<bool>());
    EXPECT_TRUE(y.select(1, 8).eq(0).all().item<bool>());
  }
  copy_heads({});
}

TEST(Rows, CopiesOfHeadsThatDoNotFitAreNamed) {
  const at::Tensor x = at::ones({3, 8});
  const RopeTable table =
      make_rope_table(std::vector<std::int32_t>{0, 1, 2}, std::vector<float>{1, 2});
  const auto bug = [&](const HeadCopy& copy, std::int64_t head_dim, const RopeTable& angles) {
    return bug_of([&] { copy_heads(std::span(&copy, 1), head_dim, angles); });
  };
  EXPECT_THAT(bug({x, at::ones({3, 7})}, 4, {}), HasSubstr("to is [3, 8], got [3, 7]"));
  EXPECT_THAT(bug({x, at::ones({2, 8})}, 4, {}), HasSubstr("to is [3, 8], got [2, 8]"));
  EXPECT_THAT(bug({x, at::ones({8, 3}).t()}, 4, {}), HasSubstr("columns of to are neighbours"));
  EXPECT_THAT(bug({x, x.to(at::kDouble)}, 4, {}), HasSubstr("from and to have one type"));
  EXPECT_THAT(bug({x.to(at::kByte), x.to(at::kByte)}, 4, {}), HasSubstr("2, 4 or 8 bytes"));
  EXPECT_THAT(bug({at::Tensor(), x}, 4, {}), HasSubstr("from is a matrix"));
  EXPECT_THAT(bug({x, x.clone(), true}, 3, table), HasSubstr("whole heads"));
  EXPECT_THAT(bug({x, x.clone(), true}, 4, {}), HasSubstr("cosine"));
  EXPECT_THAT(bug({x, x.clone(), true}, 8, table), HasSubstr("cosine"));
  EXPECT_THAT(bug({x.to(at::kDouble), x.to(at::kDouble), true}, 4, table),
              HasSubstr("from is float32 or bfloat16"));
  const HeadCopy of_two_types[] = {{x, x.clone()}, {x.to(at::kInt), x.to(at::kInt)}};
  EXPECT_THAT(bug_of([&] { copy_heads(of_two_types); }), HasSubstr("copies have one type"));
  const HeadCopy of_two_lengths[] = {{x, x.clone()}, {at::ones({2, 8}), at::ones({2, 8})}};
  EXPECT_THAT(bug_of([&] { copy_heads(of_two_lengths); }), HasSubstr("from is [3, 8], got [2, 8]"));
}

TEST(Rows, ScaledCopiesRoundTheProductAsLibtorchDoes) {
  at::manual_seed(11);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<ScaledCopy> copies;
    for (const double scale : {1.0, 0.5, 2.0 / 3.0, 64.0 / 24.0}) {
      copies.push_back({pitched(40, 8), pitched(40, 8, type), scale});
      copies.push_back({at::randn({1, 33}), at::empty({1, 33}, type), scale});
    }
    scaled_copies(copies);
    for (const ScaledCopy& copy : copies) {
      EXPECT_TRUE(copy.to.equal((copy.from * copy.scale).to(type))) << copy.scale;
    }
  }
  scaled_copies({});
}

TEST(Rows, ScaledCopiesThatDoNotFitAreNamed) {
  const at::Tensor x = at::ones({3, 8});
  const auto bug = [](const ScaledCopy& copy) {
    return bug_of([&] { scaled_copies(std::span(&copy, 1)); });
  };
  EXPECT_THAT(bug({x, at::ones({3, 7})}), HasSubstr("to is [3, 8], got [3, 7]"));
  EXPECT_THAT(bug({x, at::ones({2, 8})}), HasSubstr("to is [3, 8], got [2, 8]"));
  EXPECT_THAT(bug({x, at::ones({8, 3}).t()}), HasSubstr("columns of to are neighbours"));
  EXPECT_THAT(bug({x.to(at::kBFloat16), x.clone()}), HasSubstr("from is float32"));
  EXPECT_THAT(bug({x, x.to(at::kDouble)}), HasSubstr("to is float32 or bfloat16"));
  EXPECT_THAT(bug({at::ones({8}), at::ones({8})}), HasSubstr("from is a matrix"));
  const ScaledCopy of_two_types[] = {{x, x.clone()}, {x, x.to(at::kBFloat16)}};
  EXPECT_THAT(bug_of([&] { scaled_copies(of_two_types); }),
              HasSubstr("to has the call's element type"));
}

TEST(Rows, SwigluAndItsBackwardEqualAutograd) {
  at::manual_seed(4);
  const at::Tensor gate_up = pitched(5, 14);
  const at::Tensor dout = pitched(5, 7);
  const at::Tensor exact = gate_up.to(at::kDouble).clone().requires_grad_(true);
  const at::Tensor want = at::silu(exact.narrow(1, 0, 7)) * exact.narrow(1, 7, 7);
  want.backward(dout.to(at::kDouble));
  const at::Tensor out = pitched(5, 7);
  swiglu(gate_up, out);
  expect_near(out, want.detach(), 1e-6);
  swiglu_backward(dout, gate_up, gate_up, dout);
  expect_near(gate_up, exact.grad(), 2e-6);
  EXPECT_TRUE(dout.equal(out));
}

TEST(Rows, CrossEntropySumsItsRowsAndCountsHits) {
  at::manual_seed(5);
  const at::Tensor logits = pitched(9, 31);
  const at::Tensor exact = logits.to(at::kDouble).clone().requires_grad_(true);
  const std::vector<std::int32_t> labels = {0, 30, 4, 4, 7, 1, 2, 3, 9};
  const at::Tensor targets = at::tensor(std::vector<std::int64_t>(labels.begin(), labels.end()));
  const at::Tensor want = at::cross_entropy_loss(exact, targets, {}, at::Reduction::Sum);
  at::Tensor(want * 0.25).backward();
  const std::int64_t hits = exact.argmax(1).eq(targets).sum().item<std::int64_t>();
  const TileLoss got = cross_entropy(logits, labels, 0.25);
  EXPECT_NEAR(got.loss_sum, want.item<double>(), 1e-5);
  EXPECT_EQ(got.correct, hits);
  expect_near(logits, exact.grad(), 1e-6);
}

TEST(Rows, EmbeddingRowsGoOutAndComeBack) {
  at::manual_seed(6);
  const at::Tensor table = at::randn({7, 6});
  const std::vector<std::int32_t> ids = {6, 0, 6, 2};
  const at::Tensor out = pitched(4, 6);
  embedding_gather(table, ids, out);
  EXPECT_TRUE(out.equal(table.index_select(0, at::tensor({6, 0, 6, 2}))));
  const at::Tensor dtable = at::zeros({7, 6});
  embedding_scatter(out, ids, dtable);
  EXPECT_TRUE(dtable.select(0, 6).equal(table.select(0, 6) * 2));
  EXPECT_TRUE(dtable.select(0, 2).equal(table.select(0, 2)));
  EXPECT_TRUE(dtable.narrow(0, 3, 3).eq(0).all().item<bool>());
}

TEST(Rows, DropoutWritesOrAccumulatesWithOneMask) {
  at::manual_seed(7);
  const std::vector<std::uint64_t> keys = {5, 6, 7};
  const DropoutKeys address{.row_keys = keys, .seed_key = 9, .probability = 0.5F};
  const at::Tensor x = pitched(3, 40);
  const at::Tensor y = pitched(3, 40);
  dropout(x, y, address, 0, DropoutOutput::kWrite);
  EXPECT_TRUE(y.eq(0).logical_or(y.eq(x * 2)).all().item<bool>());
  const double dropped = y.eq(0).sum().item<double>();
  EXPECT_GT(dropped, 30);
  EXPECT_LT(dropped, 90);
  const at::Tensor sum = x.clone();
  dropout(x, sum, address, 0, DropoutOutput::kAccumulate);
  expect_near(sum, x + y, 1e-6);
  const at::Tensor tail = at::empty({3, 30});
  dropout(x.narrow(1, 10, 30), tail, address, 10, DropoutOutput::kWrite);
  EXPECT_TRUE(tail.equal(y.narrow(1, 10, 30)));
}

TEST(Rows, NoiseStaysWithinItsMagnitude) {
  const std::vector<std::uint64_t> keys = {1, 2};
  const std::vector<float> magnitude = {0.5F, 0};
  const at::Tensor x = at::zeros({2, 300});
  add_uniform_noise(x, keys, magnitude, 3);
  EXPECT_LE(x.abs().max().item<double>(), 0.5);
  EXPECT_GT(x.abs().max().item<double>(), 0.45);
  EXPECT_TRUE(x.select(0, 1).eq(0).all().item<bool>());
}

TEST(Rows, RowsMayBeMissing) {
  const at::Tensor weight = at::ones({4});
  EXPECT_EQ(rms_norm(at::empty({0, 4}), weight, 1e-5, at::empty({0, 4})).size(0), 0);
  EXPECT_EQ(cross_entropy(at::empty({0, 4}), {}, 1).loss_sum, 0);
  swiglu(at::empty({0, 8}), at::empty({0, 4}));
  const HeadCopy none[] = {{at::empty({0, 4}), at::empty({0, 4}), true}};
  copy_heads(none, 4, make_rope_table({}, std::vector<float>{1, 2}));
  const ScaledCopy nothing[] = {{at::empty({0, 4}), at::empty({0, 4})},
                                {at::empty({4, 0}), at::empty({4, 0})}};
  scaled_copies(nothing);
  embedding_gather(at::ones({3, 4}), {}, at::empty({0, 4}));
}

TEST(Rows, WorksInBfloat16) {
  at::manual_seed(8);
  const at::Tensor x = pitched(3, 16, at::kBFloat16);
  const at::Tensor weight = at::randn({16}).to(at::kBFloat16);
  const at::Tensor y = pitched(3, 16, at::kBFloat16);
  rms_norm(x, weight, 1e-5, y);
  const at::Tensor exact = x.to(at::kDouble);
  const at::Tensor want =
      exact * at::rsqrt(exact.pow(2).mean(-1, true) + 1e-5) * weight.to(at::kDouble);
  const at::Tensor error = (y.to(at::kDouble) - want).abs() / want.abs().clamp_min(1e-6);
  EXPECT_LE(error.max().item<double>(), 0x1.0p-8);
}

TEST(Rows, ArgumentsThatDoNotFitAreNamed) {
  const at::Tensor x = at::ones({3, 8});
  const at::Tensor weight = at::ones({8});
  EXPECT_THAT(bug_of([&] { rms_norm(x.to(at::kDouble), weight, 0, x); }),
              HasSubstr("x is float32 or bfloat16"));
  EXPECT_THAT(bug_of([&] {
                rms_norm(x, weight, 0, at::ones({3, 7}));
              }),
              HasSubstr("y is [3, 8], got [3, 7]"));
  EXPECT_THAT(bug_of([&] { rms_norm(x, weight, 0, x.to(at::kBFloat16)); }),
              HasSubstr("y has the call's element type"));
  EXPECT_THAT(bug_of([&] { rms_norm(x, at::ones({5}), 0, x); }), HasSubstr("whole groups"));
  EXPECT_THAT(bug_of([&] { rms_norm(x.t(), at::ones({3}), 0, at::Tensor()); }),
              HasSubstr("columns of x are neighbours"));
  EXPECT_THAT(bug_of([&] { swiglu(x, at::ones({3, 5})); }), HasSubstr("out is [3, 4]"));
  EXPECT_THAT(bug_of([&] {
                rms_norm_backward(x, x, weight, at::ones({2}), at::Tensor(), x, at::Tensor());
              }),
              HasSubstr("rstd"));
  const std::vector<std::int32_t> labels = {0, 1};
  EXPECT_THAT(bug_of([&] { cross_entropy(x, labels, 0); }), HasSubstr("one label per row"));
  EXPECT_THAT(bug_of([&] {
                embedding_gather(at::ones({9, 8}).t(), labels, at::ones({2, 9}));
              }),
              HasSubstr("table is contiguous"));
  EXPECT_THAT(bug_of([&] { dropout(x, x, {}, 0, DropoutOutput::kWrite); }),
              HasSubstr("one key per row"));
  EXPECT_THAT(bug_of([&] {
                rope(x, make_rope_table({}, std::vector<float>{1}), 2, RopeDirection::kForward);
              }),
              HasSubstr("cosine"));
}

}  // namespace
}  // namespace longhaul::ops
