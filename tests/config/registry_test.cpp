#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "config/shapes.h"
#include "config/test_models.h"

namespace longhaul::config {
namespace {

using testing::HasSubstr;
using testing_models::qwen3;
using testing_models::tied_qwen2;

std::vector<std::string> names(const std::vector<ParamSpec>& params) {
  std::vector<std::string> result;
  for (const ParamSpec& param : params) {
    result.push_back(param.name);
  }
  return result;
}

std::vector<std::string> trainable(const std::vector<ParamSpec>& params) {
  std::vector<std::string> result;
  for (const ParamSpec& param : params) {
    if (param.trainable) {
      result.push_back(param.name);
    }
  }
  return result;
}

const ParamSpec& find(const std::vector<ParamSpec>& params, const std::string& name) {
  for (const ParamSpec& param : params) {
    if (param.name == name) {
      return param;
    }
  }
  throw std::out_of_range(name);
}

std::string error_of(const ModelConfig& model, const TuningSpec& tuning) {
  try {
    build_registry(model, tuning);
  } catch (const base::UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Registry, ListsTransformersNamesInItsOrder) {
  ModelConfig model = qwen3();
  model.num_layers = 1;
  EXPECT_EQ(
      names(build_registry(model, {.full = true})),
      (std::vector<std::string>{
          "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
          "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
          "model.layers.0.self_attn.o_proj.weight", "model.layers.0.self_attn.q_norm.weight",
          "model.layers.0.self_attn.k_norm.weight", "model.layers.0.mlp.gate_proj.weight",
          "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
          "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
          "model.norm.weight", "lm_head.weight"}));
}

TEST(Registry, ShapesFollowHeadsAndWidths) {
  const std::vector<ParamSpec> params = build_registry(qwen3(), {.full = true});
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(find(params, "model.layers.1.self_attn.q_proj.weight").shape, (Shape{48, 24}));
  EXPECT_EQ(find(params, "model.layers.1.self_attn.v_proj.weight").shape, (Shape{16, 24}));
  EXPECT_EQ(find(params, "model.layers.1.self_attn.o_proj.weight").shape, (Shape{24, 48}));
  EXPECT_EQ(find(params, "model.layers.1.self_attn.k_norm.weight").shape, (Shape{8}));
  EXPECT_EQ(find(params, "model.layers.1.mlp.down_proj.weight").shape, (Shape{24, 40}));
  EXPECT_EQ(find(params, "lm_head.weight").shape, (Shape{50, 24}));
  EXPECT_EQ(find(params, "lm_head.weight").num_elements(), 1200);
}

TEST(Registry, DecaysMatricesButNotBiasesAndNorms) {
  for (const ParamSpec& param : build_registry(tied_qwen2(), {.full = true})) {
    EXPECT_EQ(param.decay, param.shape.size() == 2) << param.name;
  }
}

TEST(Registry, ATiedHeadPointsAtTheEmbeddingAndTrainsWithIt) {
  const std::vector<ParamSpec> params = build_registry(tied_qwen2(), {.full = true});
  EXPECT_EQ(find(params, "lm_head.weight").tied_to, "model.embed_tokens.weight");
  EXPECT_TRUE(find(params, "lm_head.weight").trainable);
  const std::vector<ParamSpec> frozen =
      build_registry(tied_qwen2(), {.full = true, .freeze_prefixes = {"model.embed_tokens"}});
  EXPECT_FALSE(find(frozen, "lm_head.weight").trainable);
  EXPECT_TRUE(find(frozen, "model.norm.weight").trainable);
}

TEST(Registry, LoraTrainsTheAdapterOnly) {
  const ModelConfig model = tied_qwen2();
  LoraSpec lora{.rank = 3};
  lora.target_modules =
      resolve_target_modules(model, std::vector<std::string>{"v_proj", "down_proj"});
  const std::vector<ParamSpec> params = build_registry(model, {.lora = lora});
  EXPECT_EQ(trainable(params),
            (std::vector<std::string>{"model.layers.0.self_attn.v_proj.lora_A.weight",
                                      "model.layers.0.self_attn.v_proj.lora_B.weight",
                                      "model.layers.0.mlp.down_proj.lora_A.weight",
                                      "model.layers.0.mlp.down_proj.lora_B.weight",
                                      "model.layers.1.self_attn.v_proj.lora_A.weight",
                                      "model.layers.1.self_attn.v_proj.lora_B.weight",
                                      "model.layers.1.mlp.down_proj.lora_A.weight",
                                      "model.layers.1.mlp.down_proj.lora_B.weight"}));
  const ParamSpec& a = find(params, "model.layers.1.mlp.down_proj.lora_A.weight");
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{3, 40}));
  EXPECT_TRUE(a.decay);
  EXPECT_TRUE(a.in_adapter);
  EXPECT_EQ(a.layer, 1);
  EXPECT_EQ(find(params, "model.layers.0.self_attn.v_proj.lora_B.weight").shape,
            (std::vector<std::int64_t>{8, 3}));
}

TEST(Registry, ASavedEndOfTiedEmbeddingsBecomesACopyOfItsOwn) {
  const ModelConfig model = tied_qwen2();
  LoraSpec lora;
  lora.target_modules = resolve_target_modules(model, std::vector<std::string>{"q_proj"});
  lora.modules_to_save = {"lm_head"};
  const std::vector<ParamSpec> params = build_registry(model, {.lora = lora});
  EXPECT_TRUE(find(params, "lm_head.weight").trainable);
  EXPECT_TRUE(find(params, "lm_head.weight").in_adapter);
  EXPECT_FALSE(find(params, "lm_head.weight").tied_to.has_value());
  EXPECT_FALSE(find(params, "model.embed_tokens.weight").trainable);
}

TEST(Registry, SavedModulesMatchByTheirEndingAsInPeft) {
  const ModelConfig model = tied_qwen2();
  LoraSpec lora;
  lora.target_modules = resolve_target_modules(model, std::vector<std::string>{"q_proj"});
  lora.modules_to_save = {"norm"};  // layer norms end in it, too
  const std::vector<ParamSpec> params = build_registry(model, {.lora = lora});
  EXPECT_TRUE(find(params, "model.norm.weight").in_adapter);
  EXPECT_TRUE(find(params, "model.layers.0.input_layernorm.weight").in_adapter);
  EXPECT_EQ(find(params, "lm_head.weight").tied_to, "model.embed_tokens.weight");
  lora.modules_to_save = {"classifier"};
  EXPECT_THAT(error_of(model, {.lora = lora}), HasSubstr("--modules_to_save"));
  lora.modules_to_save = {"self_attn"};
  EXPECT_THAT(error_of(model, {.lora = lora}), HasSubstr("is a LoRA target and part of the saved"));
}

TEST(Registry, ThawingWinsOverFreezing) {
  const std::vector<ParamSpec> params =
      build_registry(qwen3(), {.full = true,
                               .freeze_prefixes = {"model.layers", "lm_head"},
                               .trainable_regex = R"(layers\.1\.mlp\.(up|down)_proj)"});
  EXPECT_EQ(trainable(params), (std::vector<std::string>{
                                   "model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight",
                                   "model.layers.1.mlp.down_proj.weight", "model.norm.weight"}));
}

TEST(Registry, FreezesTheLeadingShareOfAllParameters) {
  // Embedding 1200 elements first; ratio 1 freezes everything, so one prefix must thaw again.
  const ModelConfig model = qwen3();
  std::int64_t total = 0;
  for (const ParamSpec& param : build_registry(model, {.full = true})) {
    total += param.num_elements();
  }
  const auto first_trained = [&](double ratio) {
    return trainable(build_registry(model, {.full = true, .freeze_ratio = ratio})).front();
  };
  EXPECT_EQ(first_trained(0), "model.embed_tokens.weight");
  EXPECT_EQ(first_trained(1199.5 / static_cast<double>(total)), "model.embed_tokens.weight");
  EXPECT_EQ(first_trained(1200.5 / static_cast<double>(total)),
            "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(trainable(build_registry(
                model, {.full = true, .freeze_ratio = 1, .trainable_prefixes = {"lm_head"}})),
            (std::vector<std::string>{"lm_head.weight"}));
}

TEST(Registry, NamesEveryPatternThatMatchesNothing) {
  const std::string error = error_of(
      tied_qwen2(),
      {.full = true, .freeze_prefixes = {"layers.0", "lm_head"}, .trainable_regex = "experts"});
  EXPECT_THAT(error,
              HasSubstr("--freeze_parameters: matches no parameter of this model (got layers.0)"));
  EXPECT_THAT(error, HasSubstr("name model.embed_tokens"));
  EXPECT_THAT(error, HasSubstr("--trainable_parameters_regex"));
  EXPECT_THAT(error_of(tied_qwen2(), {.full = true, .freeze_regex = "("}),
              HasSubstr("invalid regular expression"));
  EXPECT_THAT(error_of(tied_qwen2(), {.full = true, .freeze_prefixes = {""}}),
              HasSubstr("no parameter is left"));
}

}  // namespace
}  // namespace longhaul::config
