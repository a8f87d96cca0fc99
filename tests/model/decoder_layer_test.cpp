// One decoder layer: what it keeps, what re-running gives back, and its gradient against finite
// differences. The formula itself is tested through the whole model.
#include "model/decoder_layer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "dist/communicator.h"
#include "dist/shard.h"
#include "dist/ulysses.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using config::ActivationPreset;
using model::LayerSlots;

/// Layer 1 of a tiny model, one rank, a row of three documents.
struct Subject {
  explicit Subject(const std::string& name, const config::TuningSpec* tuning = nullptr)
      : model(testing::tiny_model(name)),
        spec(tuning != nullptr ? *tuning : testing::tiny_tuning(model, testing::Tuning::kLora)),
        parameters(config::build_registry(model, spec), at::kFloat),
        comm(dist::make_single()),
        exchange(*comm, config::split_heads(model.num_heads, model.num_kv_heads, 1),
                 model.head_dim),
        attention(model, exchange),
        store(model, parameters, spec.lora ? spec.lora->scale() : 1.0),
        layer(model, attention, 1),
        batch(dist::shard_row(testing::make_row({testing::make_document(6, 1, 50, 1),
                                                 testing::make_document(1, 1, 50, 2),
                                                 testing::make_document(4, 1, 50, 3)},
                                                0),
                              1, 0)),
        context(batch, model, random),
        sink(parameters) {
    testing::randomise(parameters, 2);
    attention.set_row(context);
    at::manual_seed(1);
    x = at::randn({11, model.hidden_size});
    dy = at::randn({11, model.hidden_size});
  }
  [[nodiscard]] const model::LayerWeights& weights() {
    return *store.acquire(1, model::Pass::kForward);
  }

  config::ModelConfig model;
  config::TuningSpec spec;
  model::Parameters parameters;
  model::RandomAddress random{.seed = 5, .epoch = 0, .lora_dropout = 0.2};
  std::unique_ptr<dist::Communicator> comm;
  dist::UlyssesExchange exchange;
  model::UlyssesAttention attention;
  model::ResidentWeightStore store;
  model::DecoderLayer layer;
  dist::LocalBatch batch;
  model::RowContext context;
  model::FlatGradSink sink;
  at::Tensor x;
  at::Tensor dy;
};

/// Which of input, qkv, out, lse, residual, gate_up are there.
std::vector<bool> kept(const LayerSlots& slots) {
  return {slots.input.defined(),         slots.attention.qkv.defined(),
          slots.attention.out.defined(), slots.attention.lse.defined(),
          slots.residual.defined(),      slots.mlp.gate_up.defined()};
}

class DecoderLayer : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, DecoderLayer, ::testing::Values("llama", "qwen2", "qwen3", "smol"),
                         [](const auto& test) { return test.param; });

TEST_P(DecoderLayer, KeepsWhatItsPresetSays) {
  Subject setup(GetParam());
  const std::vector<std::pair<ActivationPreset, std::vector<bool>>> presets = {
      {ActivationPreset::kA, {true, true, true, true, true, true}},
      {ActivationPreset::kB, {true, true, true, true, true, false}},
      {ActivationPreset::kC, {true, false, true, true, false, false}},
      {ActivationPreset::kD, {true, false, false, false, false, false}}};
  for (const auto& [preset, expected] : presets) {
    LayerSlots slots;
    setup.layer.forward(setup.x, setup.weights(), setup.context, {.preset = preset}, slots);
    EXPECT_EQ(kept(slots), expected) << static_cast<int>(preset);
    EXPECT_TRUE(slots.u_attention_in.defined() && slots.u_attention_out.defined() &&
                slots.mlp.u_in.defined() && slots.mlp.u_down.defined());
  }
}

TEST_P(DecoderLayer, RerunBringsBackTheSameBits) {
  Subject setup(GetParam());
  LayerSlots all;
  const at::Tensor y = setup.layer.forward(setup.x, setup.weights(), setup.context, {}, all);
  LayerSlots slots;
  const at::Tensor again = setup.layer.forward(setup.x, setup.weights(), setup.context,
                                               {.preset = ActivationPreset::kD}, slots);
  EXPECT_TRUE(again.equal(y));
  setup.layer.rerun(setup.weights(), setup.context, slots);
  EXPECT_TRUE(slots.attention.qkv.equal(all.attention.qkv));
  EXPECT_TRUE(slots.attention.out.equal(all.attention.out));
  EXPECT_TRUE(slots.attention.lse.equal(all.attention.lse));
  EXPECT_TRUE(slots.residual.equal(all.residual));
  EXPECT_FALSE(slots.mlp.gate_up.defined());  // the MLP makes it itself, tile by tile
  EXPECT_TRUE(setup.layer.output(setup.weights(), setup.context, slots).equal(y));
  EXPECT_TRUE(setup.layer.forward_only(setup.x, setup.weights(), setup.context).equal(y));
}

TEST_P(DecoderLayer, DoesNotTouchItsInput) {
  Subject setup(GetParam());
  const at::Tensor before = setup.x.clone();
  LayerSlots slots;
  setup.layer.forward(setup.x, setup.weights(), setup.context, {}, slots);
  setup.layer.backward(setup.dy, setup.weights(), setup.context, slots,
                       model::InputGradient::kNeeded, setup.sink);
  EXPECT_TRUE(setup.x.equal(before));
}

TEST_P(DecoderLayer, InputGradientEqualsFiniteDifferences) {
  Subject setup(GetParam());
  LayerSlots slots;
  setup.layer.forward(setup.x, setup.weights(), setup.context, {}, slots);
  const at::Tensor dx = setup.layer.backward(setup.dy, setup.weights(), setup.context, slots,
                                             model::InputGradient::kNeeded, setup.sink);
  const auto value = [&](const at::Tensor& x) {
    const at::Tensor y = setup.layer.forward_only(x, setup.weights(), setup.context);
    return (y.to(at::kDouble) * setup.dy).sum().item<double>();
  };
  const double step = 2e-3;
  for (int direction = 0; direction < 4; ++direction) {
    const at::Tensor d = at::randn(setup.x.sizes());
    const double slope = (dx.to(at::kDouble) * d).sum().item<double>();
    const double quotient = (value(setup.x + d * step) - value(setup.x - d * step)) / (2 * step);
    EXPECT_NEAR(quotient, slope, 1e-2 * dx.norm().item<double>());
  }
}

TEST_P(DecoderLayer, BackwardConsumesTheSlots) {
  Subject setup(GetParam());
  LayerSlots slots;
  setup.layer.forward(setup.x, setup.weights(), setup.context, {}, slots);
  setup.layer.backward(setup.dy, setup.weights(), setup.context, slots,
                       model::InputGradient::kNeeded, setup.sink);
  EXPECT_EQ(kept(slots), std::vector<bool>(6, false));
  EXPECT_FALSE(slots.u_attention_in.defined() || slots.u_attention_out.defined() ||
               slots.mlp.u_in.defined() || slots.mlp.u_down.defined());
}

TEST(DecoderLayerGradients, AreNotMadeForAnInputThatNobodyNeeds) {
  Subject setup("llama");
  LayerSlots slots;
  setup.layer.forward(setup.x, setup.weights(), setup.context, {}, slots);
  EXPECT_FALSE(setup.layer
                   .backward(setup.dy, setup.weights(), setup.context, slots,
                             model::InputGradient::kNotNeeded, setup.sink)
                   .defined());
  const at::Tensor lora = setup.parameters.gradient(
      setup.parameters.find("model.layers.1.self_attn.q_proj.lora_A.weight"));
  EXPECT_GT(lora.abs().sum().item<double>(), 0);
}

TEST(DecoderLayerGradients, ReachATrainedInputNormAllTheSame) {
  const config::TuningSpec full{.full = true};
  const auto gradient = [&](model::InputGradient need) {
    Subject setup("llama", &full);
    LayerSlots slots;
    setup.layer.forward(setup.x, setup.weights(), setup.context, {}, slots);
    setup.layer.backward(setup.dy, setup.weights(), setup.context, slots, need, setup.sink);
    return setup.parameters.gradient(setup.parameters.find("model.layers.1.input_layernorm.weight"))
        .clone();
  };
  const at::Tensor needed = gradient(model::InputGradient::kNeeded);
  EXPECT_GT(needed.abs().sum().item<double>(), 0);
  EXPECT_TRUE(gradient(model::InputGradient::kNotNeeded).equal(needed));
}

TEST(DecoderLayerGradients, NeedTheInputToRerun) {
  Subject setup("llama");
  LayerSlots empty;
  EXPECT_THROW(setup.layer.rerun(setup.weights(), setup.context, empty), base::InternalError);
}

}  // namespace
}  // namespace longhaul
