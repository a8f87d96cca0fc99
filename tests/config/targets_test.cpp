#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "config/model_config.h"
#include "config/shapes.h"
#include "config/test_models.h"

namespace longhaul::config {
namespace {

using testing::HasSubstr;
using testing_models::tied_qwen2;
using Names = std::vector<std::string>;

Names resolve(const Names& targets, const Names& saved = {}) {
  return resolve_target_modules(tied_qwen2(), targets, saved);
}

std::string error_of(const Names& targets, const Names& saved = {}) {
  try {
    resolve(targets, saved);
  } catch (const base::UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TargetModules, ChooseAndTrainWhatPeftDoes) {
  const std::string path = LONGHAUL_SOURCE_DIR "/tests/golden/config/targets.json";
  const base::Json golden = base::parse_json(base::read_file(path), path);
  const ModelConfig model = parse_model_config(golden["model"].dump(), "config.json");
  for (const base::Json& entry : golden["cases"]) {
    SCOPED_TRACE(entry["targets"].dump() + " " + entry["modules_to_save"].dump());
    LoraSpec lora;
    lora.rank = 3;
    lora.modules_to_save = entry["modules_to_save"].get<Names>();
    lora.target_modules =
        resolve_target_modules(model, entry["targets"].get<Names>(), lora.modules_to_save);
    EXPECT_EQ(lora.target_modules, entry["lora"].get<Names>());
    TuningSpec tuning;
    tuning.lora = lora;
    std::vector<base::Json> trained;
    for (const ParamSpec& param : build_registry(model, tuning)) {
      if (param.trainable) {
        trained.push_back({param.name, param.shape});
        EXPECT_TRUE(param.in_adapter) << param.name;
      }
    }
    std::sort(trained.begin(), trained.end());
    EXPECT_EQ(base::Json(trained).dump(), entry["trained"].dump());
  }
}

TEST(TargetModules, AllLinearIsEveryLinearLayerButTheHead) {
  const Names all = resolve({"all-linear"});
  EXPECT_EQ(all.size(), 14U);
  EXPECT_EQ(all.front(), "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(all.back(), "model.layers.1.mlp.down_proj");
  EXPECT_EQ(resolve({}), all);
  EXPECT_EQ(resolve({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
            all);
}

TEST(TargetModules, NamesMatchWholePathsOrEndingsAtADot) {
  EXPECT_EQ(resolve({"v_proj"}),
            (Names{"model.layers.0.self_attn.v_proj", "model.layers.1.self_attn.v_proj"}));
  EXPECT_EQ(resolve({"1.mlp.up_proj", "model.layers.0.self_attn.q_proj"}),
            (Names{"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj"}));
  EXPECT_THAT(error_of({"proj"}), HasSubstr("matches no linear layer of this model (got proj"));
}

TEST(TargetModules, OneExpressionMatchesWholePaths) {
  EXPECT_EQ(resolve({R"(model\.layers\.1\.self_attn\.(q|v)_proj)"}),
            (Names{"model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"}));
  EXPECT_EQ(resolve({R"(.*\.(?P<which>up|gate)_proj)"}).size(), 4U);
  // A match that covers a part only is none.
  EXPECT_THAT(error_of({"(q_proj|v_proj)"}), HasSubstr("matches no linear layer"));
  EXPECT_THAT(error_of({".*q_proj", "v_proj"}), HasSubstr("got .*q_proj"));
  EXPECT_THAT(error_of({"*q_proj"}), HasSubstr("invalid regular expression"));
}

TEST(TargetModules, RefusesEmbeddingHeadAndWhatIsNotLinear) {
  EXPECT_THAT(error_of({"embed_tokens"}), HasSubstr("model.embed_tokens cannot be a LoRA target"));
  EXPECT_THAT(error_of({"q_proj", "lm_head"}), HasSubstr("lm_head cannot be a LoRA target"));
  EXPECT_THAT(error_of({"mlp"}), HasSubstr("matches model.layers.0.mlp, which is no linear layer"));
  EXPECT_THAT(error_of({".*"}), HasSubstr("which is no linear layer"));
}

TEST(TargetModules, ListsEveryTargetThatMatchesNothing) {
  const std::string error = error_of({"query_key_value", "q_proj", "w1"});
  EXPECT_THAT(error, HasSubstr("query_key_value"));
  EXPECT_THAT(error, HasSubstr("got w1"));
}

TEST(TargetModules, SavedModulesGetNoLora) {
  EXPECT_EQ(resolve({"all-linear"}, {"mlp"}).size(), 8U);
  EXPECT_EQ(resolve({"all-linear"}, {"lm_head"}).size(), 14U);
  EXPECT_THAT(error_of({"up_proj"}, {"mlp"}), HasSubstr("no linear layer is left"));
}

}  // namespace
}  // namespace longhaul::config
