// What trains in part: frozen and thawed names, adapters on some layers, saved copies of modules.
// Gradients exist exactly where something trains and equal autograd's; nothing flows further down
// than it must.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/shard.h"
#include "model/decoder_model.h"
#include "model/layout_runner.h"
#include "model/reference_model.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using testing::Document;
using testing::Tuning;

struct Case {
  std::string name;
  std::string model;
  config::TuningSpec spec;
  std::set<std::string> trained;  // empty: not written out
};

config::TuningSpec thaw(const std::vector<std::string>& prefixes, const std::string& regex = "") {
  return {.full = true,
          .freeze_regex = ".",  // everything
          .trainable_prefixes = prefixes,
          .trainable_regex = regex};
}

config::TuningSpec lora(const std::string& model, const std::vector<std::string>& targets,
                        const std::vector<std::string>& saved = {}) {
  config::TuningSpec spec;
  spec.lora = config::LoraSpec{
      .rank = 3,
      .alpha = 4,
      .dropout = 0,
      .target_modules = config::resolve_target_modules(testing::tiny_model(model), targets),
      .modules_to_save = saved};
  return spec;
}

std::vector<Case> cases() {
  const std::string last = "model.layers.1.";
  std::vector<Case> list;
  list.push_back({"one_matrix_of_a_group",
                  "qwen2",
                  thaw({last + "self_attn.q_proj.weight"}),
                  {last + "self_attn.q_proj.weight"}});
  list.push_back({"another_matrix_of_a_group",
                  "llama",
                  thaw({"model.layers.0.mlp.up_proj"}),
                  {"model.layers.0.mlp.up_proj.weight"}});
  list.push_back({"biases_only", "qwen2", thaw({}, "bias$"), {}});
  list.push_back({"first_input_norm_only",
                  "llama",
                  thaw({"model.layers.0.input_layernorm"}),
                  {"model.layers.0.input_layernorm.weight"}});
  list.push_back({"query_norm_only",
                  "qwen3",
                  thaw({last + "self_attn.q_norm"}),
                  {last + "self_attn.q_norm.weight"}});
  list.push_back({"final_norm_only", "llama", thaw({"model.norm"}), {"model.norm.weight"}});
  list.push_back({"head_only", "llama", thaw({"lm_head"}), {"lm_head.weight"}});
  list.push_back(
      {"embedding_only", "llama", thaw({"model.embed_tokens"}), {"model.embed_tokens.weight"}});
  list.push_back(
      {"tied_embedding_only", "smol", thaw({"model.embed_tokens"}), {"model.embed_tokens.weight"}});
  list.push_back({"all_but_the_embedding",
                  "qwen2",
                  {.full = true, .freeze_prefixes = {"model.embed_tokens"}},
                  {}});
  list.push_back({"all_but_the_first_layer",
                  "qwen3",
                  {.full = true, .freeze_prefixes = {"model.embed_tokens", "model.layers.0"}},
                  {}});
  list.push_back({"lora_on_the_last_layer", "smol", lora("smol", {".*layers\\.1\\..*_proj"}), {}});
  list.push_back({"lora_on_o_and_down", "qwen2", lora("qwen2", {"o_proj", "down_proj"}), {}});
  list.push_back({"lora_on_k_and_gate", "qwen3", lora("qwen3", {"k_proj", "gate_proj"}), {}});
  list.push_back({"lora_and_saved_head", "llama", lora("llama", {"v_proj"}, {"lm_head"}), {}});
  list.push_back(
      {"lora_and_saved_head_of_a_tied_model", "smol", lora("smol", {"q_proj"}, {"lm_head"}), {}});
  list.push_back({"lora_and_saved_embedding_of_a_tied_model",
                  "qwen2_tied",
                  lora("qwen2_tied", {"all-linear"}, {"embed_tokens"}),
                  {}});
  list.push_back({"lora_and_both_ends_of_a_tied_model",
                  "qwen2_tied",
                  lora("qwen2_tied", {"up_proj"}, {"embed_tokens", "lm_head"}),
                  {}});
  list.push_back({"lora_and_a_saved_norm", "llama", lora("llama", {"q_proj"}, {"norm"}), {}});
  return list;
}

std::vector<Document> documents(std::int64_t vocab) {
  return {testing::make_document(11, 3, vocab, 41), testing::make_document(1, 0, vocab, 42),
          testing::make_document(8, 1, vocab, 43)};
}

class TuningPatterns : public ::testing::TestWithParam<Case> {};

TEST_P(TuningPatterns, GradientsExistWhereSomethingTrainsAndEqualAutograd) {
  const Case& test = GetParam();
  const config::ModelConfig model = testing::tiny_model(test.model);
  model::Parameters weights(config::build_registry(model, test.spec), at::kFloat);
  testing::randomise(weights, 7);
  const data::PackedBatch row = testing::make_row(documents(model.vocab_size), 0);
  const testing::ReferenceResult want = testing::reference_step(
      model, weights, test.spec.lora ? test.spec.lora->scale() : 1.0, documents(model.vocab_size),
      1.0 / static_cast<double>(row.num_targets()));
  for (const std::int64_t sp : {1, 2}) {
    testing::StepOptions options;
    options.spec = test.spec;
    options.policy.preset = sp == 1 ? config::ActivationPreset::kA : config::ActivationPreset::kD;
    const testing::StepResult got =
        testing::run_step(test.model, Tuning::kFull, {.sp = sp}, {row}, options);
    EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum);
    EXPECT_EQ(testing::compare_gradients(got.gradients, want.gradients, 1e-5), "") << "sp " << sp;
    std::set<std::string> names;
    for (const auto& [name, gradient] : got.gradients) {
      names.insert(name);
      EXPECT_GT(gradient.abs().sum().item<double>(), 0) << name;
    }
    if (!test.trained.empty()) {
      EXPECT_EQ(names, test.trained);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, TuningPatterns, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

/// Notes for which layers the backward pass asked for weights.
class WatchedStore final : public model::WeightStore {
 public:
  explicit WatchedStore(model::WeightStore& real) : real_(real) {}
  model::WeightLease acquire(std::int64_t layer, model::Pass pass) override {
    if (pass == model::Pass::kBackward) {
      backward_layers.insert(layer);
    }
    return real_.acquire(layer, pass);
  }
  [[nodiscard]] const model::EndWeights& ends() const override { return real_.ends(); }
  [[nodiscard]] std::int64_t num_layers() const override { return real_.num_layers(); }
  [[nodiscard]] std::int64_t lowest_trained_layer() const override {
    return real_.lowest_trained_layer();
  }
  std::set<std::int64_t> backward_layers;

 private:
  model::WeightStore& real_;
};

std::set<std::int64_t> layers_with_backward(const std::string& name,
                                            const config::TuningSpec& spec) {
  config::ModelConfig model = testing::tiny_model(name);
  model.num_layers = 4;
  model::Parameters parameters(config::build_registry(model, spec), at::kFloat);
  testing::randomise(parameters, 1);
  const std::unique_ptr<dist::Communicator> comm = dist::make_single();
  dist::UlyssesExchange exchange(*comm, config::split_heads(model.num_heads, model.num_kv_heads, 1),
                                 model.head_dim);
  model::UlyssesAttention attention(model, exchange);
  model::ResidentWeightStore resident(model, parameters, 1);
  WatchedStore store(resident);
  model::DecoderModel decoder(model, store, attention, std::vector<config::LayerPolicy>(4));
  model::FlatGradSink sink(parameters);
  const data::PackedBatch row = testing::make_row(documents(model.vocab_size), 0);
  decoder.forward_backward(dist::shard_row(row, 1, 0), 0.1, {}, sink);
  return store.backward_layers;
}

TEST(BackwardPass, EndsAtTheLowestTrainedLayer) {
  EXPECT_EQ(layers_with_backward("llama", thaw({"model.layers.2.mlp"})),
            (std::set<std::int64_t>{2, 3}));
  EXPECT_EQ(layers_with_backward("llama", thaw({"model.layers.3.self_attn.o_proj"})),
            (std::set<std::int64_t>{3}));
  EXPECT_EQ(layers_with_backward("llama", thaw({"lm_head"})), (std::set<std::int64_t>{}));
  EXPECT_EQ(layers_with_backward("llama", thaw({"model.embed_tokens"})),
            (std::set<std::int64_t>{0, 1, 2, 3}));
}

TEST(BackwardPass, InBfloat16StaysNearTheExactGradients) {
  for (const Tuning tuning : {Tuning::kLora, Tuning::kFull}) {
    const config::ModelConfig model = testing::tiny_model("qwen3");
    const config::TuningSpec spec = testing::tiny_tuning(model, tuning);
    model::Parameters weights(config::build_registry(model, spec), at::kBFloat16);
    testing::randomise(weights, 7);
    const data::PackedBatch row = testing::make_row(documents(model.vocab_size), 0);
    const double scale = 1.0 / static_cast<double>(row.num_targets());
    const testing::ReferenceResult want = testing::reference_step(
        model, weights, spec.lora ? spec.lora->scale() : 1.0, documents(model.vocab_size), scale);
    for (const std::int64_t sp : {1, 2}) {
      testing::StepOptions options;
      options.dtype = at::kBFloat16;
      const testing::StepResult got =
          testing::run_step("qwen3", tuning, {.sp = sp}, {row}, options);
      EXPECT_NEAR(got.loss_sum, want.loss_sum, 0.02 * want.loss_sum);
      double error = 0;
      double size = 0;
      for (const auto& [name, gradient] : want.gradients) {
        error += (got.gradients.at(name).to(at::kDouble) - gradient).pow(2).sum().item<double>();
        size += gradient.pow(2).sum().item<double>();
      }
      EXPECT_LE(std::sqrt(error / size), 0.04) << "sp " << sp;
    }
  }
}

}  // namespace
}  // namespace longhaul
