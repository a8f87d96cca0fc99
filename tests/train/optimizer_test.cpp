// AdamW over a model's parameters against the formula of torch.optim.AdamW in double.
#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "model/tiny_models.h"

namespace longhaul::train {
namespace {

using model::Parameters;

Parameters make(const std::string& name, testing::Tuning tuning, at::ScalarType type) {
  const config::ModelConfig model = testing::tiny_model(name);
  Parameters parameters(config::build_registry(model, testing::tiny_tuning(model, tuning)), type);
  testing::randomise(parameters, 3);
  return parameters;
}

/// torch.optim.AdamW of one tensor, in double.
struct Plain {
  at::Tensor weight;
  at::Tensor m;
  at::Tensor v;
  void step(const at::Tensor& gradient, int t, double rate, double decay,
            const AdamWOptions& options) {
    weight.mul_(1 - rate * decay);
    m = options.beta1 * m + (1 - options.beta1) * gradient;
    v = options.beta2 * v + (1 - options.beta2) * gradient * gradient;
    const at::Tensor m_hat = m / (1 - std::pow(options.beta1, t));
    const at::Tensor v_hat = v / (1 - std::pow(options.beta2, t));
    weight.sub_(rate * m_hat / (v_hat.sqrt() + options.epsilon));
  }
};

void expect_near(const at::Tensor& got, const at::Tensor& want, double limit,
                 const std::string& name) {
  EXPECT_LE((got.to(at::kDouble) - want).abs().max().item<double>(), limit) << name;
}

TEST(AdamW, FollowsTheFormulaForEveryParameter) {
  const AdamWOptions options{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.3};
  Parameters parameters = make("qwen2_tied", testing::Tuning::kFull, at::kFloat);
  AdamW optimizer(parameters, options);
  std::map<std::int64_t, Plain> plain;
  for (const model::FlatSegment& segment : parameters.segments()) {
    const at::Tensor weight = parameters.master(segment.param).to(at::kDouble).clone();
    plain[segment.param] = {weight, at::zeros_like(weight), at::zeros_like(weight)};
  }
  at::manual_seed(1);
  for (int t = 1; t <= 4; ++t) {
    parameters.flat_gradients().zero_();
    const double rate = 1e-2 / t;
    const double factor = t == 3 ? 0.5 : 1.0;
    for (const model::FlatSegment& segment : parameters.segments()) {
      const config::ParamSpec& spec =
          parameters.registry()[static_cast<std::size_t>(segment.param)];
      const at::Tensor gradient = at::randn(spec.shape);
      parameters.gradient(segment.param).copy_(gradient);
      const bool vector =
          spec.kind == config::ParamKind::kBias || spec.kind == config::ParamKind::kNorm;
      plain[segment.param].step(gradient.to(at::kDouble) * factor, t, rate, vector ? 0.0 : 0.3,
                                options);
    }
    optimizer.step(rate, factor);
    EXPECT_EQ(optimizer.steps_done(), t);
  }
  for (const model::FlatSegment& segment : parameters.segments()) {
    const std::string& name = parameters.registry()[static_cast<std::size_t>(segment.param)].name;
    const Plain& want = plain.at(segment.param);
    expect_near(parameters.master(segment.param), want.weight, 1e-6, name);
    expect_near(optimizer.exp_avg(segment), want.m, 1e-6, name);
    expect_near(optimizer.exp_avg_sq(segment), want.v, 1e-6, name);
    EXPECT_TRUE(parameters.compute(segment.param).equal(parameters.master(segment.param)));
  }
}

TEST(AdamW, RefreshesTheCopiesThatLayersRead) {
  Parameters parameters = make("llama", testing::Tuning::kLora, at::kBFloat16);
  const std::int64_t frozen = parameters.find("model.layers.0.mlp.up_proj.weight");
  const at::Tensor before = parameters.compute(frozen).clone();
  AdamW optimizer(parameters, {});
  parameters.flat_gradients().fill_(1);
  optimizer.step(1e-2, 1);
  for (const model::FlatSegment& segment : parameters.segments()) {
    EXPECT_TRUE(parameters.compute(segment.param)
                    .equal(parameters.master(segment.param).to(at::kBFloat16)));
  }
  EXPECT_TRUE(parameters.compute(frozen).equal(before));
}

TEST(AdamW, StateIsShapedLikeItsParameterAndWritable) {
  Parameters parameters = make("llama", testing::Tuning::kLora, at::kFloat);
  AdamW optimizer(parameters, {});
  const model::FlatSegment& segment = parameters.segments().front();
  EXPECT_EQ(optimizer.exp_avg(segment).sizes(), parameters.master(segment.param).sizes());
  EXPECT_TRUE(optimizer.exp_avg(segment).eq(0).all().item<bool>());
  optimizer.exp_avg(segment).fill_(2);
  optimizer.exp_avg_sq(segment).fill_(3);
  EXPECT_TRUE(optimizer.exp_avg(segment).eq(2).all().item<bool>());
  EXPECT_TRUE(optimizer.exp_avg(parameters.segments()[1]).eq(0).all().item<bool>());
  optimizer.set_steps_done(41);
  optimizer.step(0, 1);
  EXPECT_EQ(optimizer.steps_done(), 42);
}

TEST(ClipFactor, IsThatOfClipGradNorm) {
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_factor(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(1, 1), 1 / (1 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_factor(0, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(1e9, 0), 1);  // off
}

}  // namespace
}  // namespace longhaul::train
