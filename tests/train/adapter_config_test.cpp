// Writing and reading against PEFT itself stands in checkpoint_oracle.py; here are the rules of the
// reader.
#include "train/adapter_config.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/scratch.h"

namespace longhaul::train {
namespace {

using base::OrderedJson;
using test::get_file;
using test::message_of;
using test::put_file;
using test::ScratchFolder;

AdapterConfig sample() {
  return {.base_model = "/models/tiny",
          .revision = "main",
          .rank = 4,
          .alpha = 10,
          .dropout = 0.05,
          .use_rslora = true,
          .target_modules = {"q_proj", "down_proj"},
          .modules_to_save = {"lm_head"}};
}

TEST(AdapterConfig, ReadsBack) {
  const ScratchFolder scratch;
  write_adapter_config(scratch.path(), sample());
  const AdapterConfig back = read_adapter_config(scratch.path());
  EXPECT_EQ(back.base_model, "/models/tiny");
  EXPECT_EQ(back.revision, "main");
  EXPECT_EQ(back.rank, 4);
  EXPECT_EQ(back.alpha, 10);
  EXPECT_EQ(back.dropout, 0.05);
  EXPECT_TRUE(back.use_rslora);
  EXPECT_EQ(back.target_modules, sample().target_modules);
  EXPECT_EQ(back.target_regex, std::nullopt);
  EXPECT_EQ(back.modules_to_save, sample().modules_to_save);
}

TEST(AdapterConfig, KeepsAnExpressionAndAFractionalAlpha) {
  const ScratchFolder scratch;
  AdapterConfig config = sample();
  config.target_modules.clear();
  config.target_regex = R"(model\.layers\.\d+\.mlp\..*)";
  config.alpha = 0.1 + 0.2;
  write_adapter_config(scratch.path(), config);
  const AdapterConfig back = read_adapter_config(scratch.path());
  EXPECT_EQ(back.target_regex, config.target_regex);
  EXPECT_TRUE(back.target_modules.empty());
  EXPECT_EQ(back.alpha, config.alpha);
}

TEST(AdapterConfig, WritesWholeNumbersAsPeftDoes) {
  const ScratchFolder scratch;
  write_adapter_config(scratch.path(), sample());
  const std::string text = get_file(scratch / "adapter_config.json");
  EXPECT_NE(text.find("\"lora_alpha\": 10,"), std::string::npos) << text;
  EXPECT_NE(text.find("\"task_type\": \"CAUSAL_LM\""), std::string::npos) << text;
}

class AdapterConfigFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    write_adapter_config(scratch_.path(), sample());
    good_ = base::parse_ordered_json(get_file(scratch_ / kAdapterConfigFile), "config");
  }
  std::string message_for(const OrderedJson& json) {
    put_file(scratch_ / kAdapterConfigFile, json.dump());
    return message_of<base::UserError>([&] { read_adapter_config(scratch_.path()); });
  }
  ScratchFolder scratch_;
  OrderedJson good_;
};

TEST_F(AdapterConfigFaults, RefusesEveryFeatureThatChangesTheMathematics) {
  const std::map<std::string, OrderedJson> features = {{"use_dora", true},
                                                       {"lora_bias", true},
                                                       {"fan_in_fan_out", true},
                                                       {"use_qalora", true},
                                                       {"rank_pattern", {{"q_proj", 2}}},
                                                       {"alpha_pattern", {{"q_proj", 2}}},
                                                       {"layers_to_transform", {1, 2}},
                                                       {"layers_pattern", "h"},
                                                       {"layer_replication", {{0, 4}, {2, 5}}},
                                                       {"trainable_token_indices", {1}},
                                                       {"target_parameters", {"experts"}},
                                                       {"exclude_modules", "lm_head"},
                                                       {"some_future_feature", 3}};
  for (const auto& [key, value] : features) {
    OrderedJson bad = good_;
    bad[key] = value;
    const std::string message = message_for(bad);
    EXPECT_NE(message.find("'" + key + "' is not supported"), std::string::npos) << message;
    EXPECT_EQ(message.rfind((scratch_ / kAdapterConfigFile).string(), 0), 0U) << message;
  }
}

TEST_F(AdapterConfigFaults, RefusesMissingAndMistypedValues) {
  const std::vector<std::pair<std::string, OrderedJson>> faults = {
      {"r", 0},
      {"r", -1},
      {"r", 2.5},
      {"r", "8"},
      {"r", nullptr},
      {"lora_alpha", "x"},
      {"lora_alpha", -1},
      {"lora_alpha", nullptr},
      {"lora_dropout", 1.5},
      {"use_rslora", 1},
      {"target_modules", 7},
      {"target_modules", {1}},
      {"target_modules", nullptr},
      {"target_modules", OrderedJson::array()},
      {"modules_to_save", "lm_head"},
      {"peft_type", "IA3"},
      {"peft_type", nullptr},
      {"task_type", "SEQ_CLS"},
      {"bias", "all"},
      {"init_lora_weights", "pissa"},
      {"base_model_name_or_path", 1}};
  for (const auto& [key, value] : faults) {
    OrderedJson bad = good_;
    bad[key] = value;
    const std::string message = message_for(bad);
    EXPECT_NE(message.find("'" + key + "'"), std::string::npos) << key << ' ' << value << message;
  }
}

TEST_F(AdapterConfigFaults, TellsEveryProblemAtOnce) {
  OrderedJson bad = good_;
  bad["r"] = 0;
  bad["use_dora"] = true;
  bad.erase("target_modules");
  put_file(scratch_ / kAdapterConfigFile, bad.dump());
  try {
    read_adapter_config(scratch_.path());
    FAIL() << "accepted";
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.problems().size(), 3U) << error.what();
  }
}

TEST_F(AdapterConfigFaults, AcceptsFeaturesThatAreOff) {
  OrderedJson json = good_;
  json["use_dora"] = false;
  json["loftq_config"] = OrderedJson::object();
  json["exclude_modules"] = nullptr;
  json["megatron_core"] = "megatron.core";
  json["peft_version"] = "0.21.0";
  json["base_model_name_or_path"] = nullptr;
  json["task_type"] = nullptr;
  json["init_lora_weights"] = "gaussian";
  json.erase("lora_dropout");
  put_file(scratch_ / kAdapterConfigFile, json.dump());
  const AdapterConfig config = read_adapter_config(scratch_.path());
  EXPECT_EQ(config.base_model, "");
  EXPECT_EQ(config.dropout, 0);
}

TEST_F(AdapterConfigFaults, RefusesAMissingFileAndOtherJson) {
  EXPECT_NE(message_for(OrderedJson::array()).find("not an object"), std::string::npos);
  std::filesystem::remove(scratch_ / kAdapterConfigFile);
  EXPECT_NE(message_of<base::UserError>([&] {
              read_adapter_config(scratch_.path());
            }).find("adapter_config.json"),
            std::string::npos);
}

TEST(BaseModel, IsTheSameByTheLastPartOfItsName) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "real/Qwen3-0.6B");
  std::filesystem::create_directory_symlink(scratch / "real/Qwen3-0.6B", scratch / "link");
  const std::string folder = (scratch / "real/Qwen3-0.6B").string();
  EXPECT_TRUE(is_same_model(folder, "Qwen/Qwen3-0.6B"));
  EXPECT_TRUE(is_same_model(folder + "/", "/elsewhere/Qwen3-0.6B"));
  EXPECT_TRUE(is_same_model((scratch / "link").string(), "Qwen/Qwen3-0.6B"));
  EXPECT_TRUE(is_same_model((scratch / "link").string(), "/elsewhere/link"));
  EXPECT_TRUE(is_same_model("/cache/models--Qwen--Qwen3-0.6B/snapshots/0a1b", folder));
  EXPECT_TRUE(is_same_model("", folder));
  EXPECT_FALSE(is_same_model(folder, "Qwen/Qwen3-0.6B-Base"));
  EXPECT_FALSE(is_same_model(folder, "/elsewhere/Qwen3-0.6B/other"));
}

TEST(AdapterTensorNames, AreThoseOfPeft) {
  EXPECT_EQ(adapter_tensor_name(AdapterPart::kLoraA, "model.layers.0.self_attn.q_proj"),
            "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(adapter_tensor_name(AdapterPart::kLoraB, "model.layers.0.mlp.down_proj"),
            "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight");
  EXPECT_EQ(adapter_tensor_name(AdapterPart::kSaved, "lm_head.weight"),
            "base_model.model.lm_head.weight");
}

TEST(AdapterTensorNames, ReadBack) {
  for (const AdapterPart part : {AdapterPart::kLoraA, AdapterPart::kLoraB, AdapterPart::kSaved}) {
    const auto tensor = parse_adapter_tensor_name(adapter_tensor_name(part, "model.x_proj"));
    ASSERT_TRUE(tensor.has_value());
    EXPECT_EQ(tensor->part, part);
    EXPECT_EQ(tensor->target, "model.x_proj");
  }
}

TEST(AdapterTensorNames, OfUnsupportedAdaptersAreNotUnderstood) {
  for (const char* name :
       {"", "model.layers.0.q_proj.lora_A.weight", "base_model.model.", "base_model.model.x.lora_C",
        "base_model.model.embed_tokens.lora_embedding_A",
        "base_model.model.x.lora_magnitude_vector", "base_model.model.x.lora_A.default.weight",
        "base_model.model.lora_A.weight"}) {
    EXPECT_EQ(parse_adapter_tensor_name(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace longhaul::train
