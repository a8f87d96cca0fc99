// AdamW over a model's parameters against the formula of torch.optim.AdamW in double, and with
// moments in bf16 against libtorch's own AdamW.
#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

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

// --- moments in bf16

constexpr AdamWOptions kSmallState{.state_dtype = base::Dtype::kBFloat16, .seed = 42};

/// Gradients of a step: noise around another mean for every element; elements 0, 7, 14 … of the flat
/// buffer never get any.
void fill_gradients(Parameters& parameters, std::int64_t step) {
  at::manual_seed(static_cast<std::uint64_t>(step));
  const at::Tensor place = at::arange(parameters.flat_gradients().numel(), at::kFloat);
  const at::Tensor noise = at::randn(place.sizes());
  const at::Tensor values = (noise + (place * 0.7).sin()) * (place * 0.01).cos().exp();
  const at::Tensor thinned = values * place.remainder(7).ne(0);
  for (const model::FlatSegment& segment : parameters.segments()) {
    const at::Tensor& gradient = parameters.gradient(segment.param);
    gradient.copy_(thinned.narrow(0, segment.offset, segment.count).view_as(gradient));
  }
}

/// libtorch's own AdamW on copies of the masters, in fp32.
class TorchAdamW {
 public:
  explicit TorchAdamW(const Parameters& parameters) : parameters_(parameters) {
    for (const model::FlatSegment& segment : parameters.segments()) {
      weights.push_back(parameters.master(segment.param).clone());
      exp_avg.push_back(at::zeros_like(weights.back()));
      exp_avg_sq.push_back(at::zeros_like(weights.back()));
      steps_.push_back(at::zeros({}, at::kFloat));
    }
  }
  void step(double rate, const AdamWOptions& options) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const model::FlatSegment& segment = parameters_.segments()[i];
      steps_[i].add_(1);
      at::_fused_adamw_({weights[i]}, {parameters_.gradient(segment.param)}, {exp_avg[i]},
                        {exp_avg_sq[i]}, {}, {steps_[i]}, rate, options.beta1, options.beta2,
                        segment.decay ? options.weight_decay : 0.0, options.epsilon, false, false);
    }
  }
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> exp_avg;
  std::vector<at::Tensor> exp_avg_sq;

 private:
  const Parameters& parameters_;
  std::vector<at::Tensor> steps_;
};

at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) {
    parts.push_back(tensor.to(at::kDouble).reshape({-1}));
  }
  return at::cat(parts);
}

double rms(const at::Tensor& values) { return values.pow(2).mean().sqrt().item<double>(); }

/// The mean, in its own standard errors.
double mean_in_errors(const at::Tensor& values) {
  return std::abs(values.mean().item<double>()) / rms(values) *
         std::sqrt(static_cast<double>(values.numel()));
}

TEST(Bf16Moments, FollowLibtorchsAdamWWithinTheirNoise) {
  Parameters parameters = make("qwen2_tied", testing::Tuning::kFull, at::kFloat);
  AdamW optimizer(parameters, kSmallState);
  TorchAdamW torch(parameters);
  const at::Tensor before = flat(torch.weights);
  for (int t = 1; t <= 50; ++t) {
    fill_gradients(parameters, t);
    optimizer.step(1e-3, 1);
    torch.step(1e-3, kSmallState);
  }
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> m;
  std::vector<at::Tensor> v;
  for (const model::FlatSegment& segment : parameters.segments()) {
    weights.push_back(parameters.master(segment.param));
    m.push_back(optimizer.exp_avg(segment));
    v.push_back(optimizer.exp_avg_sq(segment));
  }
  const at::Tensor moved = flat(torch.weights) - before;
  const at::Tensor weight_error = flat(weights) - flat(torch.weights);
  const at::Tensor scale = flat(torch.exp_avg_sq).sqrt().add(1e-30);
  const at::Tensor m_error = (flat(m) - flat(torch.exp_avg)) / scale;
  const at::Tensor v_error = (flat(v) - flat(torch.exp_avg_sq)) / scale / scale;
  // A rounding errs by one part in 400 (root mean square) and is remembered for 1 / (1 − β) steps:
  // 0.7 % of noise in v, a third of that in the weights' way.
  EXPECT_GT(rms(weight_error), 0);
  EXPECT_LE(rms(weight_error), 0.005 * rms(moved));
  EXPECT_LE(rms(m_error), 0.005);
  EXPECT_LE(rms(v_error), 0.01);
  EXPECT_LE(mean_in_errors(weight_error), 5);
  EXPECT_LE(mean_in_errors(m_error), 5);
  EXPECT_LE(mean_in_errors(v_error), 5);
}

TEST(Bf16Moments, AreStoredInTwoBytesBesideFp32Masters) {
  Parameters parameters = make("llama", testing::Tuning::kFull, at::kBFloat16);
  AdamW optimizer(parameters, kSmallState);
  EXPECT_EQ(optimizer.state_dtype(), base::Dtype::kBFloat16);
  for (const model::FlatSegment& segment : parameters.segments()) {
    EXPECT_EQ(optimizer.exp_avg(segment).scalar_type(), at::kBFloat16);
    EXPECT_EQ(optimizer.exp_avg_sq(segment).scalar_type(), at::kBFloat16);
    EXPECT_EQ(parameters.master(segment.param).scalar_type(), at::kFloat);
  }
}

/// Masters and moments after a number of steps with the gradients of fill_gradients.
std::vector<at::Tensor> state_after(Parameters& parameters, AdamW& optimizer, std::int64_t steps) {
  while (optimizer.steps_done() < steps) {
    fill_gradients(parameters, optimizer.steps_done());
    optimizer.step(1e-3, 1);
  }
  std::vector<at::Tensor> state = {parameters.flat_masters().clone()};
  for (const model::FlatSegment& segment : parameters.segments()) {
    state.push_back(optimizer.exp_avg(segment).clone());
    state.push_back(optimizer.exp_avg_sq(segment).clone());
  }
  return state;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

TEST(Bf16Moments, GoOnFromAStepAsIfTheyHadNeverStopped) {
  Parameters whole = make("qwen3", testing::Tuning::kFull, at::kFloat);
  AdamW never_stopped(whole, kSmallState);
  Parameters part = make("qwen3", testing::Tuning::kFull, at::kFloat);
  AdamW first(part, kSmallState);
  const std::vector<at::Tensor> stopped = state_after(part, first, 3);
  AdamW second(part, kSmallState);
  second.set_steps_done(3);
  std::size_t next = 1;
  for (const model::FlatSegment& segment : part.segments()) {
    second.exp_avg(segment).copy_(stopped[next++]);
    second.exp_avg_sq(segment).copy_(stopped[next++]);
  }
  const std::vector<at::Tensor> want = state_after(whole, never_stopped, 6);
  EXPECT_TRUE(equal(state_after(part, second, 6), want));
}

TEST(Bf16Moments, AreRoundedAnewForEverySeedAndStep) {
  const auto after = [](std::uint64_t seed, std::int64_t first_step) {
    Parameters parameters = make("llama", testing::Tuning::kFull, at::kFloat);
    AdamW optimizer(parameters, {.state_dtype = base::Dtype::kBFloat16, .seed = seed});
    fill_gradients(parameters, 1);
    optimizer.set_steps_done(first_step);
    optimizer.step(0, 1);
    std::vector<at::Tensor> moments;
    for (const model::FlatSegment& segment : parameters.segments()) {
      moments.push_back(optimizer.exp_avg(segment).clone());
    }
    return moments;
  };
  EXPECT_TRUE(equal(after(1, 0), after(1, 0)));
  EXPECT_FALSE(equal(after(1, 0), after(2, 0)));
  EXPECT_FALSE(equal(after(1, 0), after(1, 1)));
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
