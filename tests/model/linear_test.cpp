// A group of linear layers with adapters against libtorch's autograd on the plain formula in fp64.
#include "model/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "model/recording_sink.h"

namespace longhaul {
namespace {

using model::LinearMember;
using model::LoraDropout;
using testing::RecordingSink;

constexpr std::int64_t kIn = 10;
constexpr std::int64_t kRows = 7;
constexpr double kScale = 1.75;

/// Three members of 6, 3 and 4 outputs; the middle one has no adapter. Parameter numbers: weights
/// 0–2, biases 10–12, A 20–22, B 30–32.
struct Group {
  explicit Group(at::ScalarType compute = at::kFloat) : type(compute) {
    at::manual_seed(1);
    w = at::randn({13, kIn}).to(type);
    bias = at::randn({13}).to(type);
    lora_a = at::randn({5, kIn}).to(type);
    const std::int64_t outputs[] = {6, 3, 4};
    const std::int64_t ranks[] = {3, 0, 2};
    std::int64_t row = 0;
    std::int64_t column = 0;
    for (std::int64_t i = 0; i < 3; ++i) {
      LinearMember member{.outputs = {row, row + outputs[i]},
                          .lora_columns = {column, column + ranks[i]},
                          .lora_b = at::Tensor(),
                          .weight = i,
                          .bias = 10 + i};
      if (ranks[i] > 0) {
        member.lora_b = at::randn({outputs[i], ranks[i]}).to(type);
        member.lora_a_param = 20 + i;
        member.lora_b_param = 30 + i;
      }
      row = member.outputs.end;
      column = member.lora_columns.end;
      members.push_back(member);
    }
    x = at::randn({kRows, kIn}).to(type);
    dy = at::randn({kRows, 13}).to(type);
  }

  [[nodiscard]] model::SeparateLinear linear() const { return {w, bias, lora_a, kScale, members}; }
  [[nodiscard]] static RecordingSink sink() {
    return RecordingSink({{0, {6, kIn}},
                          {1, {3, kIn}},
                          {2, {4, kIn}},
                          {10, {6}},
                          {11, {3}},
                          {12, {4}},
                          {20, {3, kIn}},
                          {22, {2, kIn}},
                          {30, {6, 3}},
                          {32, {4, 2}}});
  }

  at::ScalarType type;
  at::Tensor w;
  at::Tensor bias;
  at::Tensor lora_a;
  std::vector<LinearMember> members;
  at::Tensor x;
  at::Tensor dy;
};

const std::vector<std::uint64_t>& row_keys() {
  static const std::vector<std::uint64_t> keys = {3, 1, 4, 15, 92, 65, 35};
  return keys;
}

LoraDropout dropout_of(bool on) {
  return on ? LoraDropout(
                  ops::DropoutKeys{.row_keys = row_keys(), .seed_key = 77, .probability = 0.4F})
            : std::nullopt;
}

/// The mask as a matrix of 0 and 1/(1 − p).
at::Tensor mask_of(const LoraDropout& dropout) {
  const at::Tensor ones = at::ones({kRows, kIn});
  if (dropout) {
    ops::dropout(ones, ones, *dropout, 0, ops::DropoutOutput::kWrite);
  }
  return ones.to(at::kDouble);
}

at::Tensor exact(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

/// The plain formula with every operand a leaf of autograd.
struct Oracle {
  Oracle(const Group& group, const at::Tensor& mask) {
    const auto leaf = [](const at::Tensor& tensor) {
      return exact(tensor).clone().requires_grad_(true);
    };
    x = leaf(group.x);
    w = leaf(group.w);
    bias = leaf(group.bias);
    a = leaf(group.lora_a);
    u = at::matmul(x * mask, a.t());
    std::vector<at::Tensor> parts;
    for (const LinearMember& member : group.members) {
      b.push_back(member.lora_b.defined() ? leaf(member.lora_b) : at::Tensor());
      at::Tensor part =
          at::matmul(x, w.narrow(0, member.outputs.begin, member.outputs.size()).t()) +
          bias.narrow(0, member.outputs.begin, member.outputs.size());
      if (b.back().defined()) {
        part = part + kScale * at::matmul(u.narrow(1, member.lora_columns.begin,
                                                   member.lora_columns.size()),
                                          b.back().t());
      }
      parts.push_back(part);
    }
    y = at::cat(parts, 1);
    y.backward(exact(group.dy));
  }
  at::Tensor x, w, bias, a, u, y;
  std::vector<at::Tensor> b;
};

void expect_near(const at::Tensor& got, const at::Tensor& want, double limit = 2e-6) {
  ASSERT_EQ(got.sizes(), want.sizes());
  const double scale = std::max(1.0, exact(want).abs().max().item<double>());
  EXPECT_LE((exact(got) - exact(want)).abs().max().item<double>(), limit * scale);
}

class Linear : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Dropout, Linear, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "dropout" : "none"; });

TEST_P(Linear, ForwardEqualsThePlainFormula) {
  const Group group;
  const LoraDropout dropout = dropout_of(GetParam());
  const Oracle oracle(group, mask_of(dropout));
  const at::Tensor y = at::full({kRows, 13}, NAN);
  at::Tensor u;
  group.linear().forward(group.x, dropout, at::Tensor(), y, u);
  expect_near(y, oracle.y.detach());
  expect_near(u, oracle.u.detach());
  const at::Tensor add = at::randn({kRows, 13});
  const at::Tensor sum = at::full({kRows, 13}, NAN);
  group.linear().forward(group.x, dropout, add, sum, u);
  expect_near(sum, oracle.y.detach() + add);
}

TEST_P(Linear, ReusesTheInnerProductOfTheFirstRun) {
  const Group group;
  const LoraDropout dropout = dropout_of(GetParam());
  const at::Tensor first = at::empty({kRows, 13});
  at::Tensor u;
  group.linear().forward(group.x, dropout, at::Tensor(), first, u);
  const at::Tensor again = at::empty({kRows, 13});
  at::Tensor kept = u.clone();
  group.linear().forward(group.x, dropout, at::Tensor(), again, kept);
  EXPECT_TRUE(again.equal(first));
  EXPECT_TRUE(kept.equal(u));
  at::Tensor zeros = at::zeros_like(u);  // what is given is used as it is
  group.linear().forward(group.x, dropout, at::Tensor(), again, zeros);
  expect_near(again, at::matmul(group.x, group.w.t()) + group.bias);
}

TEST_P(Linear, GradientsEqualAutograd) {
  Group group;
  for (LinearMember& member : group.members) {
    member.weight_trained = true;
    member.bias_trained = true;
  }
  const LoraDropout dropout = dropout_of(GetParam());
  const Oracle oracle(group, mask_of(dropout));
  const model::SeparateLinear linear = group.linear();
  at::Tensor u;
  linear.forward(group.x, dropout, at::Tensor(), at::empty({kRows, 13}), u);
  RecordingSink sink = Group::sink();
  const at::Tensor du = linear.lora_gradient(group.dy);
  const at::Tensor dx = at::full({kRows, kIn}, NAN);
  linear.input_gradient(group.dy, du, dropout, dx);
  linear.output_side_gradients(group.dy, u, sink);
  linear.lora_a_gradient(du, group.x, dropout, 0, sink);
  linear.base_gradient(group.dy, group.x, sink);

  expect_near(dx, oracle.x.grad());
  const std::int64_t rows[] = {0, 6, 9, 13};
  for (std::int64_t i = 0; i < 3; ++i) {
    expect_near(sink.sums().at(i), oracle.w.grad().narrow(0, rows[i], rows[i + 1] - rows[i]));
    expect_near(sink.sums().at(10 + i),
                oracle.bias.grad().narrow(0, rows[i], rows[i + 1] - rows[i]));
  }
  expect_near(sink.sums().at(20), oracle.a.grad().narrow(0, 0, 3));
  expect_near(sink.sums().at(22), oracle.a.grad().narrow(0, 3, 2));
  expect_near(sink.sums().at(30), oracle.b[0].grad());
  expect_near(sink.sums().at(32), oracle.b[2].grad());
  for (const auto& [param, sum] : sink.sums()) {
    EXPECT_EQ(sink.finished_counts().at(param), 1) << param;
  }
}

TEST_P(Linear, GradientOfAIsTheSameColumnBlockByColumnBlock) {
  const Group group;
  const LoraDropout dropout = dropout_of(GetParam());
  const model::SeparateLinear linear = group.linear();
  const at::Tensor du = linear.lora_gradient(group.dy);
  RecordingSink whole = Group::sink();
  linear.lora_a_gradient(du, group.x, dropout, 0, whole);
  RecordingSink blocks = Group::sink();
  for (const auto& [begin, size] : {std::pair{0, 4}, {4, 1}, {5, 5}}) {
    linear.lora_a_gradient(du, group.x.narrow(1, begin, size), dropout, begin, blocks);
  }
  for (const std::int64_t param : {20, 22}) {
    expect_near(blocks.sums().at(param), whole.sums().at(param), 1e-6);
  }
}

TEST_P(Linear, RowsMayBeMissing) {
  const Group group;
  LoraDropout dropout = dropout_of(GetParam());
  if (dropout) {
    dropout->row_keys = {};
  }
  const model::SeparateLinear linear = group.linear();
  const at::Tensor x = at::empty({0, kIn});
  const at::Tensor dy = at::empty({0, 13});
  at::Tensor u;
  linear.forward(x, dropout, at::Tensor(), at::empty({0, 13}), u);
  EXPECT_EQ(u.sizes(), (std::vector<std::int64_t>{0, 5}));
  RecordingSink sink = Group::sink();
  const at::Tensor du = linear.lora_gradient(dy);
  linear.input_gradient(dy, du, dropout, at::empty({0, kIn}));
  linear.output_side_gradients(dy, u, sink);
  linear.lora_a_gradient(du, x, dropout, 0, sink);
  for (const auto& [param, sum] : sink.sums()) {
    EXPECT_TRUE(sum.eq(0).all().item<bool>()) << param;
  }
}

TEST(LinearGroup, AsksTheSinkForTrainedParametersOnly) {
  Group group;
  group.members[1].weight_trained = true;  // the member without an adapter
  group.members[2].bias_trained = true;
  const model::SeparateLinear linear = group.linear();
  EXPECT_TRUE(linear.trained());
  EXPECT_TRUE(linear.needs_input());
  EXPECT_TRUE(linear.base_trained());
  at::Tensor u;
  linear.forward(group.x, std::nullopt, at::Tensor(), at::empty({kRows, 13}), u);
  RecordingSink sink = Group::sink();
  linear.output_side_gradients(group.dy, u, sink);
  linear.lora_a_gradient(linear.lora_gradient(group.dy), group.x, std::nullopt, 0, sink);
  linear.base_gradient(group.dy, group.x, sink);
  std::vector<std::int64_t> asked;
  for (const auto& [param, sum] : sink.sums()) {
    asked.push_back(param);
  }
  EXPECT_EQ(asked, (std::vector<std::int64_t>{1, 12, 20, 22, 30, 32}));
}

TEST(LinearGroup, WithoutAdaptersHasNoInnerProduct) {
  Group group;
  for (LinearMember& member : group.members) {
    member.lora_columns = {};
    member.lora_b = at::Tensor();
    member.lora_a_param = member.lora_b_param = -1;
  }
  const auto make = [&] {
    return model::SeparateLinear(group.w, group.bias, at::Tensor(), kScale, group.members);
  };
  EXPECT_FALSE(make().trained());
  EXPECT_FALSE(make().needs_input());
  EXPECT_EQ(make().lora_columns(), 0);
  at::Tensor u;
  const at::Tensor y = at::empty({kRows, 13});
  make().forward(group.x, std::nullopt, at::Tensor(), y, u);
  EXPECT_FALSE(u.defined());
  EXPECT_FALSE(make().lora_gradient(group.dy).defined());
  const at::Tensor dx = at::empty({kRows, kIn});
  make().input_gradient(group.dy, at::Tensor(), std::nullopt, dx);
  expect_near(dx, at::matmul(group.dy, group.w));
  group.members[0].bias_trained = true;  // a bias alone needs no input
  EXPECT_TRUE(make().trained());
  EXPECT_FALSE(make().needs_input());
  EXPECT_FALSE(make().base_trained());
}

TEST(LinearGroup, InBfloat16KeepsWeightGradientsInFp32) {
  Group group(at::kBFloat16);
  group.members[0].weight_trained = true;
  const Oracle oracle(group, mask_of(std::nullopt));
  const model::SeparateLinear linear = group.linear();
  at::Tensor u;
  const at::Tensor y = at::empty({kRows, 13}, at::kBFloat16);
  linear.forward(group.x, std::nullopt, at::Tensor(), y, u);
  expect_near(y, oracle.y.detach(), 2 * 0x1.0p-7);
  RecordingSink sink = Group::sink();
  linear.base_gradient(group.dy, group.x, sink);
  linear.output_side_gradients(group.dy, u, sink);
  // The base gradient's operands are exact; u was rounded once.
  expect_near(sink.sums().at(0), oracle.w.grad().narrow(0, 0, 6), 2e-6);
  expect_near(sink.sums().at(30), oracle.b[0].grad(), 2 * 0x1.0p-8);
}

TEST(LinearGroup, MembersMustCoverTheOutputs) {
  const Group group;
  std::vector<LinearMember> short_list(group.members.begin(), group.members.end() - 1);
  EXPECT_THROW(model::SeparateLinear(group.w, group.bias, group.lora_a, kScale, short_list),
               base::InternalError);
}

}  // namespace
}  // namespace longhaul
