// Loading weights and adapters: every type, sharded or not, and everything that must be refused.
#include "model/loader.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/scratch.h"
#include "model/tiny_models.h"
#include "model/weight_folder.h"

namespace longhaul {
namespace {

using model::Parameters;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::NamedTensors;
using ::testing::Not;
using testing::Tuning;

Parameters make(const std::string& name, Tuning tuning, at::ScalarType type = at::kFloat) {
  const config::ModelConfig model = testing::tiny_model(name);
  return {config::build_registry(model, testing::tiny_tuning(model, tuning)), type};
}

bool is_lora(const config::ParamSpec& spec) {
  return spec.kind == config::ParamKind::kLoraA || spec.kind == config::ParamKind::kLoraB;
}

/// Random base weights as a checkpoint holds them.
NamedTensors base_tensors(const Parameters& parameters, at::ScalarType type = at::kFloat) {
  at::manual_seed(1);
  NamedTensors tensors;
  for (const config::ParamSpec& spec : parameters.registry()) {
    if (!spec.tied_to && !is_lora(spec)) {
      tensors[spec.name] = at::randn(spec.shape).to(type);
    }
  }
  return tensors;
}

void expect_loaded(const Parameters& parameters, const NamedTensors& tensors) {
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    if (is_lora(spec)) {
      continue;
    }
    const at::Tensor& file = tensors.at(spec.tied_to.value_or(spec.name));
    const auto param = static_cast<std::int64_t>(i);
    EXPECT_TRUE(parameters.compute(param).equal(file.to(parameters.compute_type()))) << spec.name;
    if (spec.trainable) {
      EXPECT_TRUE(parameters.master(param).equal(file.to(at::kFloat))) << spec.name;
    }
  }
}

std::string load_error(const test::ScratchFolder& folder, Parameters& parameters) {
  return test::message_of<base::UserError>(
      [&] { model::BaseWeights(folder.path()).load(parameters); });
}

TEST(Loader, ReadsEveryElementTypeIntoEveryComputeType) {
  for (const at::ScalarType file : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
      for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
        const test::ScratchFolder folder;
        Parameters parameters = make("qwen2", tuning, compute);
        const NamedTensors tensors = base_tensors(parameters, file);
        testing::write_tensors(folder / "model.safetensors", tensors);
        model::BaseWeights(folder.path()).load(parameters);
        expect_loaded(parameters, tensors);
      }
    }
  }
}

TEST(Loader, ReadsShardsThroughTheirIndex) {
  const test::ScratchFolder folder;
  Parameters parameters = make("smol", Tuning::kFull);
  const NamedTensors tensors = base_tensors(parameters);
  testing::write_sharded(folder.path(), tensors, 3);
  model::BaseWeights(folder.path()).load(parameters);
  expect_loaded(parameters, tensors);
}

TEST(Loader, IgnoresTheTiedHeadAndRotaryBuffers) {
  const test::ScratchFolder folder;
  Parameters parameters = make("qwen2_tied", Tuning::kLora);
  NamedTensors tensors = base_tensors(parameters);
  tensors["lm_head.weight"] = at::full({50, 24}, NAN);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::ones({2});
  testing::write_tensors(folder / "model.safetensors", tensors);
  model::BaseWeights(folder.path()).load(parameters);
  tensors.erase("lm_head.weight");
  expect_loaded(parameters, tensors);
}

TEST(Loader, NamesEveryFaultAtOnce) {
  const test::ScratchFolder folder;
  Parameters parameters = make("llama", Tuning::kLora);
  NamedTensors tensors = base_tensors(parameters);
  tensors.erase("lm_head.weight");
  tensors["model.norm.weight"] = at::randn({23});
  tensors["model.layers.0.mlp.up_proj.weight"][3][5] = std::numeric_limits<float>::quiet_NaN();
  tensors["model.layers.1.self_attn.q_proj.weight"] =
      tensors["model.layers.1.self_attn.q_proj.weight"].to(at::kDouble);
  tensors["model.layers.2.mlp.up_proj.weight"] = at::randn({36, 24});
  tensors["model.layers.0.self_attn.q_proj.lora_A.weight"] = at::randn({4, 24});
  testing::write_tensors(folder / "model.safetensors", tensors);
  const std::string error = load_error(folder, parameters);
  EXPECT_THAT(error, HasSubstr("tensor lm_head.weight is missing"));
  EXPECT_THAT(error, AllOf(HasSubstr("tensor model.norm.weight has another shape"),
                           HasSubstr("got [23], expected [24]")));
  EXPECT_THAT(error,
              HasSubstr("tensor model.layers.0.mlp.up_proj.weight holds NaN or infinite values"));
  EXPECT_THAT(error, AllOf(HasSubstr("tensor model.layers.1.self_attn.q_proj.weight has an "
                                     "unsupported type"),
                           HasSubstr("F64")));
  EXPECT_THAT(error, HasSubstr("tensor model.layers.2.mlp.up_proj.weight is not used"));
  EXPECT_THAT(error, HasSubstr("tensor model.layers.0.self_attn.q_proj.lora_A.weight is not used"));
  EXPECT_THAT(error, HasSubstr("model.safetensors"));
}

TEST(Loader, ChecksHeadersBeforeAnythingIsAllocated) {
  const test::ScratchFolder folder;
  const Parameters parameters = make("llama", Tuning::kLora);
  NamedTensors tensors = base_tensors(parameters);
  testing::write_tensors(folder / "model.safetensors", tensors);
  EXPECT_NO_THROW(model::BaseWeights(folder.path()).check(parameters.registry()));
  tensors.erase("lm_head.weight");
  tensors["model.norm.weight"] = at::randn({23});
  tensors["model.layers.2.mlp.up_proj.weight"] = at::randn({36, 24});
  testing::write_tensors(folder / "model.safetensors", tensors);
  const std::string error = test::message_of<base::UserError>(
      [&] { model::BaseWeights(folder.path()).check(parameters.registry()); });
  EXPECT_THAT(error, HasSubstr("tensor lm_head.weight is missing"));
  EXPECT_THAT(error, HasSubstr("tensor model.norm.weight has another shape"));
  EXPECT_THAT(error, HasSubstr("tensor model.layers.2.mlp.up_proj.weight is not used"));
}

TEST(Loader, FingerprintsTellWeightsApart) {
  const test::ScratchFolder folder;
  NamedTensors tensors = base_tensors(make("llama", Tuning::kLora));
  testing::write_tensors(folder / "model.safetensors", tensors);
  const std::string first = model::BaseWeights(folder.path()).fingerprint();
  EXPECT_EQ(model::BaseWeights(folder.path()).fingerprint(), first);
  at::Tensor& norm = tensors["model.norm.weight"];
  norm[norm.numel() - 1] += 1;
  testing::write_tensors(folder / "model.safetensors", tensors);
  EXPECT_NE(model::BaseWeights(folder.path()).fingerprint(), first);
}

TEST(Loader, FindsValuesThatAreNotFiniteInEveryType) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity()}) {
      const test::ScratchFolder folder;
      Parameters parameters = make("llama", Tuning::kLora);
      NamedTensors tensors = base_tensors(parameters, type);
      tensors["model.embed_tokens.weight"][49][23] = bad;
      testing::write_tensors(folder / "model.safetensors", tensors);
      EXPECT_THAT(load_error(folder, parameters),
                  HasSubstr("model.embed_tokens.weight holds NaN or infinite"));
    }
  }
}

TEST(Loader, AnUntiedModelNeedsItsOwnHead) {
  const test::ScratchFolder folder;
  test::put_file(folder / "config.json",
                 R"({"model_type": "llama", "hidden_size": 24, "num_hidden_layers": 2,
                     "num_attention_heads": 4, "vocab_size": 50, "intermediate_size": 36,
                     "max_position_embeddings": 256, "tie_word_embeddings": false})");
  const config::ModelConfig model = testing::tiny_model("llama");
  config::TuningSpec spec = testing::tiny_tuning(model, Tuning::kLora);
  spec.lora->modules_to_save = {"lm_head"};
  Parameters parameters(config::build_registry(model, spec), at::kFloat);
  NamedTensors tensors = base_tensors(parameters);
  tensors.erase("lm_head.weight");
  testing::write_tensors(folder / "model.safetensors", tensors);
  EXPECT_THAT(load_error(folder, parameters), HasSubstr("tensor lm_head.weight is missing"));
}

/// A saved copy of one end ends the tie, but the file of a tied model holds the matrix once.
TEST(Loader, FillsBothEndsOfATiedModelWhenOneIsSavedWithTheAdapter) {
  for (const std::string saved : {"lm_head", "embed_tokens"}) {
    for (const bool head_in_file : {false, true}) {
      const test::ScratchFolder folder;
      test::put_file(folder / "config.json",
                     R"({"model_type": "llama", "hidden_size": 24, "num_hidden_layers": 2,
                         "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 50,
                         "intermediate_size": 36, "max_position_embeddings": 256,
                         "tie_word_embeddings": true})");
      const config::ModelConfig model = testing::tiny_model("qwen2_tied");
      config::TuningSpec spec = testing::tiny_tuning(model, Tuning::kLora);
      spec.lora->modules_to_save = {saved};
      Parameters parameters(config::build_registry(model, spec), at::kFloat);
      NamedTensors tensors = base_tensors(parameters);
      tensors.erase("lm_head.weight");
      if (head_in_file) {
        tensors["lm_head.weight"] = at::full({50, 24}, 3.0);  // of no use to a tied model
      }
      testing::write_tensors(folder / "model.safetensors", tensors);
      model::BaseWeights(folder.path()).load(parameters);
      tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
      expect_loaded(parameters, tensors);
      EXPECT_NE(parameters.compute(parameters.find("lm_head.weight")).data_ptr(),
                parameters.compute(parameters.find("model.embed_tokens.weight")).data_ptr());
    }
  }
}

// --- new adapters

TEST(LoraInit, DrawsAWithinKaimingsBoundsAndLeavesBZero) {
  Parameters parameters = make("llama", Tuning::kLora);
  model::init_lora(5, parameters);
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    if (!is_lora(spec)) {
      continue;
    }
    const at::Tensor& values = parameters.master(static_cast<std::int64_t>(i));
    EXPECT_TRUE(parameters.compute(static_cast<std::int64_t>(i)).equal(values));
    if (spec.kind == config::ParamKind::kLoraB) {
      EXPECT_TRUE(values.eq(0).all().item<bool>()) << spec.name;
      continue;
    }
    // Kaiming uniform with a = √5: bound √(6 / ((1 + 5)·K)) = 1/√K.
    const double bound = 1 / std::sqrt(static_cast<double>(spec.shape[1]));
    EXPECT_LE(values.abs().max().item<double>(), bound) << spec.name;
    EXPECT_GT(values.abs().max().item<double>(), 0.9 * bound) << spec.name;
    EXPECT_NEAR(values.mean().item<double>(), 0, 0.3 * bound) << spec.name;
    EXPECT_NEAR(values.pow(2).mean().item<double>(), bound * bound / 3, 0.12 * bound * bound);
  }
}

at::Tensor fresh_a(std::uint64_t seed, const std::vector<std::string>& targets,
                   at::ScalarType type = at::kFloat) {
  const config::ModelConfig model = testing::tiny_model("llama");
  config::TuningSpec spec;
  spec.lora = config::LoraSpec{
      .rank = 4, .alpha = 8, .target_modules = config::resolve_target_modules(model, targets)};
  Parameters parameters(config::build_registry(model, spec), type);
  model::init_lora(seed, parameters);
  return parameters.master(parameters.find("model.layers.1.self_attn.v_proj.lora_A.weight"))
      .clone();
}

TEST(LoraInit, DependsOnSeedAndModuleAlone) {
  const at::Tensor a = fresh_a(7, {"all-linear"});
  EXPECT_TRUE(fresh_a(7, {"v_proj"}).equal(a));
  EXPECT_TRUE(fresh_a(7, {"q_proj", "v_proj"}, at::kBFloat16).equal(a));
  EXPECT_FALSE(fresh_a(8, {"all-linear"}).equal(a));
  Parameters parameters = make("llama", Tuning::kLora);
  model::init_lora(7, parameters);
  EXPECT_FALSE(
      parameters.master(parameters.find("model.layers.0.self_attn.v_proj.lora_A.weight")).equal(a));
}

// --- adapters from a folder

NamedTensors adapter_tensors(const Parameters& parameters, at::ScalarType type = at::kFloat) {
  at::manual_seed(2);
  NamedTensors tensors;
  for (const config::ParamSpec& spec : parameters.registry()) {
    if (spec.in_adapter) {
      tensors["base_model.model." + spec.name] = at::randn(spec.shape).to(type);
    }
  }
  return tensors;
}

std::string adapter_error(const test::ScratchFolder& folder, Parameters& parameters) {
  return test::message_of<base::UserError>([&] { model::load_adapter(folder.path(), parameters); });
}

TEST(AdapterLoader, ReadsLoraMatricesAndSavedModules) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const test::ScratchFolder folder;
    const config::ModelConfig model = testing::tiny_model("qwen2");
    config::TuningSpec spec = testing::tiny_tuning(model, Tuning::kLora);
    spec.lora->modules_to_save = {"lm_head"};
    Parameters parameters(config::build_registry(model, spec), at::kBFloat16);
    const NamedTensors tensors = adapter_tensors(parameters, type);
    EXPECT_TRUE(tensors.contains("base_model.model.lm_head.weight"));
    EXPECT_TRUE(tensors.contains("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));
    testing::write_tensors(folder / "adapter_model.safetensors", tensors);
    model::load_adapter(folder.path(), parameters);
    for (const config::ParamSpec& param : parameters.registry()) {
      if (param.in_adapter) {
        EXPECT_TRUE(parameters.master(parameters.find(param.name))
                        .equal(tensors.at(model::adapter_tensor_name(param)).to(at::kFloat)))
            << param.name;
      }
    }
  }
}

TEST(AdapterLoader, RefusesAnAdapterOfAnotherModel) {
  const test::ScratchFolder folder;
  Parameters parameters = make("llama", Tuning::kLora);
  testing::write_tensors(folder / "adapter_model.safetensors",
                         adapter_tensors(make("qwen3", Tuning::kLora)));
  const std::string error = adapter_error(folder, parameters);
  EXPECT_THAT(error, AllOf(HasSubstr("k_proj.lora_B.weight has another shape"),
                           HasSubstr("Is this an adapter of another model?")));
}

TEST(AdapterLoader, NamesMissingUnknownAndDamagedTensorsAtOnce) {
  const test::ScratchFolder folder;
  Parameters parameters = make("llama", Tuning::kLora);
  NamedTensors tensors = adapter_tensors(parameters);
  const std::string layer = "base_model.model.model.layers.0.";
  tensors.erase(layer + "mlp.down_proj.lora_B.weight");
  tensors[layer + "mlp.down_proj.lora_magnitude_vector"] = at::ones({24});
  tensors[layer + "mlp.up_proj.lora_A.weight"][0][0] = std::numeric_limits<float>::infinity();
  testing::write_tensors(folder / "adapter_model.safetensors", tensors);
  const std::string error = adapter_error(folder, parameters);
  EXPECT_THAT(error, HasSubstr("mlp.down_proj.lora_B.weight is missing from the adapter"));
  EXPECT_THAT(error, HasSubstr("lora_magnitude_vector of the adapter fits nothing"));
  EXPECT_THAT(error, HasSubstr("mlp.up_proj.lora_A.weight holds NaN or infinite"));
}

TEST(AdapterLoader, AMissingFileIsNamed) {
  const test::ScratchFolder folder;
  Parameters parameters = make("llama", Tuning::kLora);
  EXPECT_THAT(adapter_error(folder, parameters), HasSubstr("adapter_model.safetensors"));
}

}  // namespace
}  // namespace longhaul
