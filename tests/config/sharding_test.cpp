#include "config/sharding.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace longhaul::config {
namespace {

ModelConfig two_layers() {
  ModelConfig model;
  model.family = ModelFamily::kQwen2;
  model.model_type = "qwen2";
  model.hidden_size = 24;
  model.num_layers = 2;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.head_dim = 6;
  model.intermediate_size = 36;
  model.vocab_size = 50;
  model.qkv_bias = true;
  return model;
}

std::vector<ParamSpec> lora_registry(std::vector<std::string> targets,
                                     std::vector<std::string> saved = {}) {
  TuningSpec spec;
  spec.lora = LoraSpec{.rank = 4,
                       .target_modules = resolve_target_modules(two_layers(), targets, saved),
                       .modules_to_save = saved};
  return build_registry(two_layers(), spec);
}

std::set<std::string> cut_names(const std::vector<ParamSpec>& registry) {
  const std::vector<bool> is_cut = cut_over_ranks(registry);
  EXPECT_EQ(is_cut.size(), registry.size());
  std::set<std::string> names;
  for (std::size_t i = 0; i < registry.size(); ++i) {
    if (is_cut[i]) {
      names.insert(registry[i].name);
    }
  }
  return names;
}

TEST(Sharding, ModulesThatShareAnInputAreOneGroup) {
  const auto name = [](const std::string& text, ParamKind kind) {
    return fused_name({.name = text, .kind = kind, .layer = 1});
  };
  const std::string q = "model.layers.1.self_attn.q_proj.";
  const std::string v = "model.layers.1.self_attn.v_proj.";
  EXPECT_EQ(name(q + "weight", ParamKind::kLinearWeight),
            name(v + "weight", ParamKind::kLinearWeight));
  EXPECT_EQ(name(q + "lora_A.weight", ParamKind::kLoraA),
            name(v + "lora_A.weight", ParamKind::kLoraA));
  EXPECT_NE(name(q + "weight", ParamKind::kLinearWeight), name(q + "bias", ParamKind::kBias));
  EXPECT_NE(name(q + "lora_B.weight", ParamKind::kLoraB),
            name(v + "lora_B.weight", ParamKind::kLoraB));
  EXPECT_NE(name("model.layers.1.mlp.up_proj.weight", ParamKind::kLinearWeight),
            name("model.layers.1.mlp.down_proj.weight", ParamKind::kLinearWeight));
}

TEST(Sharding, CutsEveryLinearWeightOfTheLayersAndNothingElse) {
  std::set<std::string> want;
  for (const std::string layer : {"0", "1"}) {
    for (const std::string_view module : layer_linear_modules()) {
      want.insert("model.layers." + layer + "." + std::string(module) + ".weight");
    }
  }
  EXPECT_EQ(cut_names(lora_registry({"all-linear"})), want);
  EXPECT_EQ(cut_names(lora_registry({"q_proj"})), want);
}

TEST(Sharding, AGroupWithATrainedMemberStaysWhole) {
  std::vector<ParamSpec> registry = lora_registry({"down_proj"});
  for (ParamSpec& spec : registry) {
    spec.trainable = spec.trainable || spec.name == "model.layers.0.self_attn.k_proj.weight";
  }
  const std::set<std::string> names = cut_names(registry);
  EXPECT_EQ(names.size(), 11U);
  EXPECT_FALSE(names.contains("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_TRUE(names.contains("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_TRUE(names.contains("model.layers.0.self_attn.o_proj.weight"));
}

TEST(Sharding, TakesAnOptionAndSeveralRanks) {
  Config config;
  config.mesh = {.dp = 2, .sp = 1};
  EXPECT_FALSE(shards_weights(config));
  config.parallel.deepspeed = "zero0";
  EXPECT_FALSE(shards_weights(config));
  config.parallel.deepspeed = "zero3";
  EXPECT_TRUE(shards_weights(config));
  EXPECT_EQ(sharding_option(config), "--deepspeed zero3");
  config.parallel = {.fsdp = "fsdp2"};
  EXPECT_TRUE(shards_weights(config));
  EXPECT_EQ(sharding_option(config), "--fsdp fsdp2");
  config.mesh = {};
  EXPECT_FALSE(shards_weights(config));
}

}  // namespace
}  // namespace longhaul::config
