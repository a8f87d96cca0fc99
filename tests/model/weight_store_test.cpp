#include "model/weight_store.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/recording_sink.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using model::Parameters;
using model::Pass;

/// A model with random weights in a resident store.
struct Subject {
  Subject(const std::string& name, const config::TuningSpec& tuning)
      : model(testing::tiny_model(name)),
        parameters(config::build_registry(model, tuning), at::kFloat),
        store(model, parameters, tuning.lora ? tuning.lora->scale() : 1.0) {
    testing::randomise(parameters, 1);
  }
  [[nodiscard]] at::Tensor weight(const std::string& param) const {
    EXPECT_GE(parameters.find(param), 0) << param;
    return parameters.compute(parameters.find(param));
  }
  config::ModelConfig model;
  Parameters parameters;
  model::ResidentWeightStore store;
};

config::TuningSpec only(const std::vector<std::string>& prefixes) {
  return {.full = true,
          .freeze_prefixes = {"model"},
          .freeze_regex = "lm_head",
          .trainable_prefixes = prefixes};
}

config::TuningSpec lora_on(const std::string& model, const std::vector<std::string>& targets) {
  config::TuningSpec spec;
  spec.lora = config::LoraSpec{
      .rank = 4,
      .alpha = 8,
      .dropout = 0,
      .target_modules = config::resolve_target_modules(testing::tiny_model(model), targets)};
  return spec;
}

TEST(WeightStore, GivesEveryLayerItsOwnWeights) {
  Subject setup("qwen3", {.full = true});
  EXPECT_EQ(setup.store.num_layers(), 2);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const model::WeightLease lease = setup.store.acquire(layer, Pass::kForward);
    EXPECT_TRUE(lease->input_norm.weight.equal(setup.weight(prefix + "input_layernorm.weight")));
    EXPECT_TRUE(
        lease->post_norm.weight.equal(setup.weight(prefix + "post_attention_layernorm.weight")));
    EXPECT_TRUE(lease->qk_norm.q.equal(setup.weight(prefix + "self_attn.q_norm.weight")));
    EXPECT_TRUE(lease->qk_norm.k.equal(setup.weight(prefix + "self_attn.k_norm.weight")));
    const at::Tensor x = at::randn({3, 24});
    const at::Tensor qkv = at::empty({3, lease->attention_in->out_features()});
    at::Tensor u;
    lease->attention_in->forward(x, std::nullopt, at::Tensor(), qkv, u);
    std::vector<at::Tensor> want;
    for (const char* module : {"q_proj", "k_proj", "v_proj"}) {
      want.push_back(at::matmul(x, setup.weight(prefix + "self_attn." + module + ".weight").t()));
    }
    EXPECT_TRUE(at::allclose(qkv, at::cat(want, 1), 1e-5, 1e-6));
    EXPECT_EQ(lease->mlp_in->out_features(), 72);
    EXPECT_EQ(lease->mlp_down->in_features(), 36);
    EXPECT_EQ(lease->attention_out->in_features(), 40);
  }
}

TEST(WeightStore, TrainsOnlyTheMembersOfAGroupThatAreThawed) {
  Subject setup("qwen2", only({"model.layers.1.self_attn.q_proj.weight"}));
  EXPECT_EQ(setup.store.lowest_trained_layer(), 1);
  EXPECT_FALSE(setup.store.acquire(0, Pass::kForward)->trained());
  const model::WeightLease lease = setup.store.acquire(1, Pass::kForward);
  EXPECT_TRUE(lease->trained());
  EXPECT_TRUE(lease->attention_in->base_trained());
  EXPECT_FALSE(lease->attention_out->trained());
  EXPECT_FALSE(lease->mlp_in->trained());
  const std::int64_t param = setup.parameters.find("model.layers.1.self_attn.q_proj.weight");
  testing::RecordingSink sink({{param, {32, 24}}});
  const at::Tensor x = at::randn({5, 24});
  const at::Tensor dy = at::randn({5, 48});
  lease->attention_in->base_gradient(dy, x, sink);
  lease->attention_in->output_side_gradients(dy, at::Tensor(), sink);
  ASSERT_EQ(sink.sums().size(), 1U);
  EXPECT_TRUE(
      at::allclose(sink.sums().at(param), at::matmul(dy.narrow(1, 0, 32).t(), x), 1e-5, 1e-6));
}

TEST(WeightStore, MarksFrozenNormsAndEnds) {
  Subject setup("llama", only({"model.layers.0.input_layernorm", "model.norm"}));
  const model::WeightLease lease = setup.store.acquire(0, Pass::kForward);
  EXPECT_EQ(lease->input_norm.param,
            setup.parameters.find("model.layers.0.input_layernorm.weight"));
  EXPECT_EQ(lease->post_norm.param, -1);
  EXPECT_FALSE(lease->qk_norm.q.defined());
  EXPECT_TRUE(lease->trained());
  const model::EndWeights& ends = setup.store.ends();
  EXPECT_EQ(ends.embedding_param, -1);
  EXPECT_EQ(ends.head_param, -1);
  EXPECT_EQ(ends.final_norm.param, setup.parameters.find("model.norm.weight"));
}

TEST(WeightStore, WithNothingTrainedInTheLayersTheLowestIsTheirNumber) {
  Subject setup("llama", only({"model.norm"}));
  EXPECT_EQ(setup.store.lowest_trained_layer(), 2);
}

TEST(WeightStore, ATiedHeadHasTheEmbeddingsNumber) {
  Subject setup("qwen2_tied", {.full = true});
  const model::EndWeights& ends = setup.store.ends();
  EXPECT_EQ(ends.embedding_param, setup.parameters.find("model.embed_tokens.weight"));
  EXPECT_EQ(ends.head_param, ends.embedding_param);
  EXPECT_EQ(ends.head.data_ptr(), ends.embedding.data_ptr());
  Subject untied("llama", {.full = true});
  EXPECT_EQ(untied.store.ends().head_param, untied.parameters.find("lm_head.weight"));
}

TEST(WeightStore, AdaptersOfSomeModulesSitInTheirOwnColumns) {
  Subject setup("qwen2", lora_on("qwen2", {"q_proj", "v_proj", "down_proj"}));
  const model::WeightLease lease = setup.store.acquire(1, Pass::kForward);
  EXPECT_EQ(lease->attention_in->lora_columns(), 8);
  EXPECT_EQ(lease->attention_out->lora_columns(), 0);
  EXPECT_EQ(lease->mlp_in->lora_columns(), 0);
  EXPECT_EQ(lease->mlp_down->lora_columns(), 4);
  at::manual_seed(1);
  const at::Tensor x = at::randn({3, 24});
  const at::Tensor qkv = at::empty({3, 48});
  at::Tensor u;
  lease->attention_in->forward(x, std::nullopt, at::Tensor(), qkv, u);
  std::vector<at::Tensor> want;
  for (const std::string module : {"q_proj", "k_proj", "v_proj"}) {
    const std::string name = "model.layers.1.self_attn." + module;
    at::Tensor part =
        at::matmul(x, setup.weight(name + ".weight").t()) + setup.weight(name + ".bias");
    if (module != "k_proj") {  // alpha / rank = 2
      part = part + 2 * at::matmul(at::matmul(x, setup.weight(name + ".lora_A.weight").t()),
                                   setup.weight(name + ".lora_B.weight").t());
    }
    want.push_back(part);
  }
  EXPECT_TRUE(at::allclose(qkv, at::cat(want, 1), 1e-5, 1e-5));
}

TEST(WeightStore, LeasesSeeUpdatedWeights) {
  Subject setup("llama", {.full = true});
  const model::WeightLease lease = setup.store.acquire(0, Pass::kForward);
  const at::Tensor x = at::ones({1, 24});
  const at::Tensor y = at::empty({1, 24});
  at::Tensor u;
  setup.parameters.flat_masters().zero_();
  setup.parameters.refresh_compute();
  lease->attention_out->forward(x, std::nullopt, at::Tensor(), y, u);
  EXPECT_TRUE(y.eq(0).all().item<bool>());
}

}  // namespace
}  // namespace longhaul
