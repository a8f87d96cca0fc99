// config.json against transformers' own reading (tests/golden/config) and, for what is refused,
// against messages.
#include "config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "config/shapes.h"

namespace longhaul::config {
namespace {

using base::OrderedJson;
using testing::HasSubstr;
using testing::Not;

OrderedJson golden() {
  const std::string path = LONGHAUL_SOURCE_DIR "/tests/golden/config/configs.json";
  return base::parse_ordered_json(base::read_file(path), path)["cases"];
}

std::string error_of(const std::string& text) {
  try {
    parse_model_config(text, "config.json");
  } catch (const base::UserError& error) {
    return error.what();
  }
  return "no error";
}

/// A good Llama with some keys replaced (null removes).
std::string llama_with(const OrderedJson& changes) {
  OrderedJson config = {{"architectures", {"LlamaForCausalLM"}},
                        {"hidden_size", 64},
                        {"intermediate_size", 96},
                        {"model_type", "llama"},
                        {"num_attention_heads", 4},
                        {"num_hidden_layers", 2},
                        {"num_key_value_heads", 2},
                        {"vocab_size", 100}};
  for (const auto& [key, value] : changes.items()) {
    if (value.is_string() && value == "REMOVE") {
      config.erase(key);
    } else {
      config[key] = value;
    }
  }
  return config.dump(2);
}

/// Llama's text with family names exchanged.
std::string family_with(const std::string& type, const std::string& architecture,
                        OrderedJson changes) {
  changes["model_type"] = type;
  changes["architectures"] = {architecture};
  return llama_with(changes);
}

TEST(ModelConfig, EqualsTransformersForEveryGoldenFile) {
  for (const OrderedJson& entry : golden()) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    const ModelConfig model = parse_model_config(entry["config"].dump(), "config.json");
    EXPECT_EQ(model.num_kv_heads, entry["num_kv_heads"]);
    EXPECT_EQ(model.head_dim, entry["head_dim"]);
    EXPECT_EQ(model.max_position_embeddings, entry["max_position_embeddings"]);
    EXPECT_EQ(model.rms_norm_eps, entry["rms_norm_eps"]);
    EXPECT_EQ(model.tie_word_embeddings, entry["tie_word_embeddings"]);
    EXPECT_EQ(model.qkv_bias, entry["qkv_bias"]);
    EXPECT_EQ(model.o_bias, entry["o_bias"]);
    EXPECT_EQ(model.mlp_bias, entry["mlp_bias"]);
    EXPECT_EQ(model.qk_norm, entry["qk_norm"]);
    EXPECT_EQ(base::dtype_name(model.dtype), entry["dtype"].get<std::string>());
    EXPECT_EQ(model.eos_token_ids, entry["eos_token_ids"].get<std::vector<std::int64_t>>());
    EXPECT_EQ(model.bos_token_id.has_value(), !entry["bos_token_id"].is_null());
    if (model.bos_token_id) {
      EXPECT_EQ(*model.bos_token_id, entry["bos_token_id"]);
    }
    EXPECT_EQ(model.pad_token_id.has_value(), !entry["pad_token_id"].is_null());
    EXPECT_TRUE(model.unknown_keys.empty());
  }
}

TEST(ModelConfig, RegistryEqualsTransformersNamesShapesAndOrder) {
  for (const OrderedJson& entry : golden()) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    const ModelConfig model = parse_model_config(entry["config"].dump(), "config.json");
    TuningSpec tuning;
    tuning.full = true;
    OrderedJson parameters = OrderedJson::object();
    for (const ParamSpec& param : build_registry(model, tuning)) {
      if (!param.tied_to) {
        parameters[param.name] = param.shape;
      }
    }
    EXPECT_EQ(parameters.dump(), entry["parameters"].dump());
  }
}

TEST(ModelConfig, FillsDefaultsAndFamilyRules) {
  const ModelConfig model = parse_model_config(llama_with({{"rope_theta", 100000}}), "c");
  EXPECT_EQ(model.family, ModelFamily::kLlama);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.q_width(), 64);
  EXPECT_EQ(model.kv_width(), 32);
  EXPECT_EQ(model.rope.theta, 100000.0);
  EXPECT_EQ(parse_model_config(llama_with({{"model_type", "REMOVE"}}), "c").model_type, "llama");
  EXPECT_EQ(parse_model_config(llama_with({{"architectures", "REMOVE"}}), "c").model_type, "llama");
}

TEST(ModelConfig, AcceptsNeutralValuesOfWhatItRefuses) {
  const std::string text = family_with("qwen2", "Qwen2ForCausalLM",
                                       {{"use_sliding_window", false},
                                        {"sliding_window", 131072},
                                        {"max_window_layers", 28},
                                        {"attention_dropout", 0.0},
                                        {"rope_scaling", nullptr},
                                        {"use_mrope", false},
                                        {"pretraining_tp", 1},
                                        {"num_local_experts", 0},
                                        {"logit_scale", 1.0},
                                        {"quantization_config", nullptr},
                                        {"layer_types", {"full_attention", "full_attention"}},
                                        {"hidden_act", "silu"},
                                        {"auto_map", OrderedJson{{"AutoTokenizer", "x.Y"}}},
                                        {"id2label", OrderedJson{{"0", "LABEL_0"}}},
                                        {"attention_bias", true}});
  EXPECT_EQ(error_of(text), "no error");
  // A window that starts above the last layer hides nothing.
  EXPECT_EQ(error_of(family_with("qwen3", "Qwen3ForCausalLM",
                                 {{"use_sliding_window", true}, {"max_window_layers", 2}})),
            "no error");
  EXPECT_EQ(error_of(family_with("mistral", "MistralForCausalLM", {{"sliding_window", nullptr}})),
            "no error");
}

struct Refused {
  const char* key;
  OrderedJson value;
  const char* message;
};

TEST(ModelConfig, RefusesByNameWhatChangesTheMathematics) {
  const std::vector<Refused> cases = {
      {"model_type", "gemma2", "model family is not available"},
      {"architectures", {"LlamaForSequenceClassification"}, "architecture is not available"},
      {"architectures", {"Qwen2ForCausalLM"}, "does not fit model_type"},
      {"num_local_experts", 8, "mixture of experts not available"},
      {"moe_intermediate_size", 64, "mixture of experts not available"},
      {"num_experts_per_tok", 2, "mixture of experts not available"},
      {"sliding_window", 4096, "sliding window attention is not available"},
      {"layer_types", {"full_attention", "linear_attention"}, "linear_attention"},
      {"layer_types", {"full_attention"}, "a list of 2 layer kinds"},
      {"vision_config", OrderedJson{{"depth", 2}}, "vision inputs not available"},
      {"text_config", OrderedJson{{"hidden_size", 2}}, "nested parts"},
      {"quantization_config", OrderedJson{{"bits", 4}}, "quantised weights not available"},
      {"attn_logit_softcapping", 50.0, "logit soft caps not available"},
      {"final_logit_softcapping", 30.0, "logit soft caps not available"},
      {"rope_scaling", OrderedJson{{"type", "yarn"}, {"factor", 4.0}},
       "rope type is not available"},
      {"rope_scaling", OrderedJson{{"type", "dynamic"}, {"factor", 4.0}}, "rope type"},
      {"rope_scaling", OrderedJson{{"rope_type", "longrope"}}, "(got \"longrope\""},
      {"rope_scaling", OrderedJson{{"type", "mrope"}, {"mrope_section", {1, 2}}}, "mrope"},
      {"rope_scaling", OrderedJson{{"type", "linear"}}, "rope_scaling.factor: missing"},
      {"rope_scaling", "linear", "an object"},
      {"rope_parameters", OrderedJson{{"full_attention", OrderedJson{{"rope_type", "default"}}}},
       "per layer type"},
      {"rope_parameters", OrderedJson{{"rope_type", "default"}, {"factor", 2.0}}, "does not use"},
      {"rope_theta", 0, "impossible value (got 0"},
      {"rope_theta", "10000", "a number"},
      {"partial_rotary_factor", 0.5, "a part of each head"},
      {"hidden_act", "gelu", "activation is not available (got \"gelu\", expected silu)"},
      {"pretraining_tp", 2, "pretraining_tp"},
      {"attention_dropout", 0.1, "dropout inside the model"},
      {"head_dim", 15, "odd width 15"},
      {"rope_interleaved", true, "interleaved"},
      {"residual_multiplier", 0.22, "scaled activations"},
      {"is_causal", false, "attention to later tokens"},
      {"auto_map", OrderedJson{{"AutoModelForCausalLM", "m.M"}}, "code of their own"},
      {"use_bias", true, "use_bias"},
      {"torch_dtype", "float8_e4m3fn", "number type is not available"},
      {"num_nextn_predict_layers", 1, "multi-token prediction"},
      {"full_attention_interval", 4, "linear attention layers"},
  };
  for (const Refused& refused : cases) {
    const std::string error = error_of(llama_with({{refused.key, refused.value}}));
    EXPECT_THAT(error, HasSubstr(refused.message)) << refused.key;
    EXPECT_THAT(error, HasSubstr(refused.key)) << error;
  }
}

TEST(ModelConfig, RefusesWhatAFamilyCannotHave) {
  EXPECT_THAT(error_of(family_with("mistral", "MistralForCausalLM", {})),
              HasSubstr("sliding_window: missing, which means a window of 4096 tokens"));
  EXPECT_THAT(error_of(family_with("mistral", "MistralForCausalLM",
                                   {{"sliding_window", nullptr}, {"attention_bias", true}})),
              HasSubstr("mistral models always have it false"));
  EXPECT_THAT(error_of(family_with("qwen2", "Qwen2ForCausalLM", {{"attention_bias", false}})),
              HasSubstr("qwen2 models always have it true"));
  EXPECT_THAT(error_of(family_with("qwen3", "Qwen3ForCausalLM",
                                   {{"use_sliding_window", true}, {"max_window_layers", 1}})),
              HasSubstr("use_sliding_window: sliding window attention is not available"));
}

TEST(ModelConfig, ListsMissingAndImpossibleFieldsTogetherWithTheirLines) {
  const std::string error = error_of(R"({
  "model_type": "llama",
  "hidden_size": -64,
  "num_hidden_layers": 2.5,
  "num_attention_heads": true,
  "vocab_size": 18446744073709551615
})");
  EXPECT_THAT(error, HasSubstr("config.json:3: hidden_size: impossible value (got -64"));
  EXPECT_THAT(error, HasSubstr("config.json:4: num_hidden_layers"));
  EXPECT_THAT(error, HasSubstr("config.json:5: num_attention_heads"));
  EXPECT_THAT(error, HasSubstr("config.json:6: vocab_size"));
  EXPECT_THAT(error, HasSubstr("config.json: intermediate_size: missing"));
  EXPECT_THAT(error_of(llama_with({{"num_key_value_heads", 3}})),
              HasSubstr("does not divide num_attention_heads (got 3, expected a divisor of 4)"));
  EXPECT_THAT(
      error_of(family_with("qwen2", "Qwen2ForCausalLM", {{"num_key_value_heads", "REMOVE"}})),
      HasSubstr("num_key_value_heads: missing, and the default does not fit"));
  EXPECT_THAT(error_of(llama_with({{"hidden_size", 66}})), HasSubstr("not a multiple of"));
  EXPECT_THAT(error_of("{}"), HasSubstr("missing, and so is architectures"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{\n\"a\": }"), HasSubstr("config.json:2"));
  EXPECT_THAT(error_of(""), HasSubstr("config.json:1"));
}

TEST(ModelConfig, NotesKeysThatNobodyReads) {
  const ModelConfig model = parse_model_config(
      llama_with({{"my_training_note", "x"}, {"transformers_version", "4.40"}, {"other", false}}),
      "config.json");
  ASSERT_EQ(model.unknown_keys.size(), 1U);
  EXPECT_EQ(model.unknown_keys[0], "config.json:12: my_training_note");
}

class ModelFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  std::filesystem::path folder_{};
};

TEST_F(ModelFolder, GenerationConfigOverridesTheStopTokens) {
  write("config.json", llama_with({{"eos_token_id", 2}}));
  EXPECT_EQ(read_model_config(folder_).eos_token_ids, (std::vector<std::int64_t>{2}));
  write("generation_config.json", R"({"eos_token_id": [7, 9], "do_sample": true})");
  EXPECT_EQ(read_model_config(folder_).eos_token_ids, (std::vector<std::int64_t>{7, 9}));
  write("generation_config.json", R"({"eos_token_id": "7"})");
  EXPECT_THROW(read_model_config(folder_), base::UserError);
}

TEST_F(ModelFolder, AMissingConfigIsTheUsersToFix) {
  EXPECT_THROW(read_model_config(folder_), base::UserError);
  EXPECT_THROW(read_model_config(folder_ / "nothing"), base::UserError);
}

}  // namespace
}  // namespace longhaul::config
