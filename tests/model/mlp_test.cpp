// The MLP in tiles of rows: close to the whole one, the same bits under every policy, every
// parameter finished once.
#include "model/mlp.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "config/activation_policy.h"
#include "dist/shard.h"
#include "model/layout_runner.h"
#include "model/recording_sink.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using testing::Tuning;

class MlpTiles : public ::testing::TestWithParam<std::tuple<std::string, Tuning>> {
 protected:
  static std::vector<data::PackedBatch> rows() {
    return testing::flatten(
        testing::composite_step(testing::tiny_model(std::get<0>(GetParam())).vocab_size));
  }
  static testing::StepResult run(const testing::StepOptions& options, std::int64_t sp) {
    const auto& [name, tuning] = GetParam();
    return testing::run_step(name, tuning, {.sp = sp}, rows(), options);
  }
};

TEST_P(MlpTiles, GiveWhatTheWholeRowGives) {
  testing::StepOptions options;
  options.lora_dropout = std::get<1>(GetParam()) == Tuning::kLora ? 0.3 : 0.0;
  const testing::StepResult want = run(options, 1);
  for (const std::int64_t sp : {1, 2}) {
    for (const std::int64_t tile : {1, 7, 24, 1000}) {
      options.mlp_tile_rows = tile;
      const testing::StepResult got = run(options, sp);
      EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum) << tile;
      EXPECT_EQ(testing::compare_gradients(got.gradients, want.gradients, 1e-5), "") << tile;
    }
  }
}

TEST_P(MlpTiles, GiveTheSameBitsUnderEveryPolicy) {
  for (const bool slabs : {false, true}) {
    if (slabs && std::get<1>(GetParam()) == Tuning::kFull) {
      continue;
    }
    testing::StepOptions options;
    options.num_layers = 4;
    options.mlp_tile_rows = 7;
    options.slabs = slabs;
    const testing::StepResult keep = run(options, 2);
    for (const char* policy : {"B", "C", "D", "D2", "A+offload", "D2+offload", "1xA,1xB,2xD2"}) {
      for (const bool reruns_u : {false, true}) {
        options.layer_policies = config::activation_policy_of_layers(policy, options.num_layers);
        options.reruns_u = reruns_u;
        const testing::StepResult other = run(options, 2);
        EXPECT_EQ(other.loss_sum, keep.loss_sum) << policy;
        for (const auto& [param, gradient] : keep.gradients) {
          EXPECT_TRUE(gradient.equal(other.gradients.at(param)))
              << param << " under " << policy << ", u made again: " << reruns_u;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MlpTiles,
                         ::testing::Combine(::testing::Values("llama", "qwen2", "smol"),
                                            ::testing::Values(Tuning::kLora, Tuning::kFull)),
                         [](const auto& test) {
                           return std::get<0>(test.param) +
                                  (std::get<1>(test.param) == Tuning::kLora ? "_lora" : "_full");
                         });

/// Layer 1 of a tiny model and a row of 11 tokens.
struct Subject {
  explicit Subject(Tuning tuning)
      : model(testing::tiny_model("llama")),
        parameters(config::build_registry(model, testing::tiny_tuning(model, tuning)), at::kFloat),
        store(model, parameters, 2.0),
        batch(dist::shard_row(testing::make_row({testing::make_document(11, 1, 50, 1)}, 0), 1, 0)),
        context(batch, model, {}) {
    testing::randomise(parameters, 2);
    at::manual_seed(1);
    r = at::randn({11, model.hidden_size});
    dy = at::randn({11, model.hidden_size});
    for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
      shapes[static_cast<std::int64_t>(i)] = parameters.registry()[i].shape;
    }
  }
  [[nodiscard]] const model::LayerWeights& weights() {
    return *store.acquire(1, model::Pass::kForward);
  }

  config::ModelConfig model;
  model::Parameters parameters;
  model::ResidentWeightStore store;
  dist::LocalBatch batch;
  model::RowContext context;
  at::Tensor r;
  at::Tensor dy;
  testing::RecordingSink::Shapes shapes;
};

TEST(Mlp, FinishesEveryParameterOnceWhateverTheTiles) {
  for (const Tuning tuning : {Tuning::kLora, Tuning::kFull}) {
    Subject setup(tuning);
    for (const std::int64_t tile : {0, 4}) {
      const model::Mlp mlp(setup.model, 1, tile);
      model::MlpSlots slots;
      testing::RecordingSink sink(setup.shapes);
      mlp.forward(setup.r, setup.weights(), setup.context, model::Mlp::GateUp::kDrop, slots);
      mlp.backward(setup.dy, setup.r, setup.weights(), setup.context, slots, sink);
      // LoRA: A and B of three modules; full: their weights and the norm's.
      EXPECT_EQ(sink.finished_counts().size(), tuning == Tuning::kLora ? 6U : 4U);
      for (const auto& [param, count] : sink.finished_counts()) {
        EXPECT_EQ(count, 1) << setup.parameters.registry()[static_cast<std::size_t>(param)].name;
      }
    }
  }
}

TEST(Mlp, KeepsWhatItIsToldTo) {
  Subject setup(Tuning::kLora);
  const model::Mlp mlp(setup.model, 1, 4);
  model::MlpSlots dropped;
  const at::Tensor y =
      mlp.forward(setup.r, setup.weights(), setup.context, model::Mlp::GateUp::kDrop, dropped);
  EXPECT_FALSE(dropped.gate_up.defined());
  EXPECT_EQ(dropped.u_in.size(0), 11);
  EXPECT_EQ(dropped.u_down.size(0), 11);
  model::MlpSlots kept;
  EXPECT_TRUE(mlp.forward(setup.r, setup.weights(), setup.context, model::Mlp::GateUp::kKeep, kept)
                  .equal(y));
  EXPECT_EQ(kept.gate_up.size(0), 11);
  EXPECT_TRUE(kept.u_in.equal(dropped.u_in));
  // A re-run reads the u that are there.
  kept.u_down.zero_();
  EXPECT_FALSE(mlp.forward(setup.r, setup.weights(), setup.context, model::Mlp::GateUp::kDrop, kept)
                   .equal(y));
}

TEST(Mlp, TakesAShardWithoutRows) {
  Subject setup(Tuning::kLora);
  const model::Mlp mlp(setup.model, 1, 4);
  const data::PackedBatch row = testing::make_row({testing::make_document(1, 1, 50, 1)}, 0);
  const dist::LocalBatch batch = dist::shard_row(row, 2, 1);
  const model::RowContext context(batch, setup.model, {});
  const at::Tensor none = at::empty({0, setup.model.hidden_size});
  model::MlpSlots slots;
  testing::RecordingSink sink(setup.shapes);
  EXPECT_EQ(mlp.forward(none, setup.weights(), context, model::Mlp::GateUp::kDrop, slots).size(0),
            0);
  EXPECT_EQ(mlp.backward(none, none, setup.weights(), context, slots, sink).size(0), 0);
  EXPECT_EQ(sink.finished_counts().size(), 6U);
}

}  // namespace
}  // namespace longhaul
