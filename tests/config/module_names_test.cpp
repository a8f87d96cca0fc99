#include "config/module_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_models.h"

namespace longhaul::config {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

TEST(ModuleNames, ContainersAndLeavesAreListedAsInTransformers) {
  ModelConfig model = testing_models::qwen3();
  model.num_layers = 1;
  EXPECT_THAT(
      all_module_names(model),
      ElementsAre("model", "model.embed_tokens", "model.layers", "model.layers.0",
                  "model.layers.0.self_attn", "model.layers.0.self_attn.q_proj",
                  "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.v_proj",
                  "model.layers.0.self_attn.o_proj", "model.layers.0.self_attn.q_norm",
                  "model.layers.0.self_attn.k_norm", "model.layers.0.mlp",
                  "model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj",
                  "model.layers.0.mlp.down_proj", "model.layers.0.mlp.act_fn",
                  "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm",
                  "model.norm", "model.rotary_emb", "lm_head"));
  EXPECT_THAT(all_module_names(testing_models::tied_qwen2()),
              Not(Contains("model.layers.0.self_attn.q_norm")));
}

TEST(ModuleNames, AModuleHoldsWhatLiesBehindADot) {
  EXPECT_TRUE(is_inside_module("model.layers.1.mlp.up_proj.weight", "model.layers.1"));
  EXPECT_TRUE(is_inside_module("lm_head", "lm_head"));
  EXPECT_FALSE(is_inside_module("model.layers.10.mlp.up_proj.weight", "model.layers.1"));
  EXPECT_FALSE(is_inside_module("model", "model.layers"));
}

TEST(ModuleNames, BiasesFollowTheModelsSwitches) {
  ModelConfig model = testing_models::qwen3();
  const auto biases = [&model] {
    int count = 0;
    for (const ParamSpec& param : base_parameters(model)) {
      count += param.kind == ParamKind::kBias ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(biases(), 0);
  model.qkv_bias = true;
  EXPECT_EQ(biases(), 6);
  model.o_bias = true;
  EXPECT_EQ(biases(), 8);
  model.mlp_bias = true;
  EXPECT_EQ(biases(), 14);
}

}  // namespace
}  // namespace longhaul::config
