// The planned bytes against the program's own allocation counters: activations, weights, gradients and states of a real
// forward, backward and update agree within 10 %. Slots on the host are not counted by them: the copies lie in
// memory of their own.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "config/activation_policy.h"
#include "dist/comm_threads.h"
#include "dist/shard.h"
#include "model/decoder_model.h"
#include "model/sharded_weight_store.h"
#include "model/tiny_models.h"
#include "ops/memory.h"
#include "plan/memory_plan.h"
#include "train/optimizer.h"

namespace longhaul {
namespace {

struct Case {
  std::string name;
  testing::Tuning tuning = testing::Tuning::kLora;
  std::string policy;
  std::int64_t sp = 1;
  base::Dtype dtype = base::Dtype::kFloat32;
  std::int64_t vocab = 8192;  // with few words the layers need most, not the head
  plan::LayerForm form{};
  bool sharded = false;
  base::Dtype moments = base::Dtype::kFloat32;
  double dropout = 0;
};

/// Large enough that activations outweigh the small change that no plan counts.
config::ModelConfig medium_model(std::int64_t vocab) {
  config::ModelConfig model = testing::tiny_model("smol");
  model.hidden_size = 288;
  model.head_dim = 32;
  model.intermediate_size = 768;
  model.num_layers = 6;
  model.vocab_size = vocab;
  return model;
}

constexpr std::int64_t kTokens = 1536;
constexpr base::Dtype kF32 = base::Dtype::kFloat32;
constexpr base::Dtype kBF16 = base::Dtype::kBFloat16;

std::int64_t measured_peak(const Case& test, const config::ModelConfig& model,
                           const config::TuningSpec& spec) {
  ops::install_counting_allocator();
  const std::int64_t before = ops::host_memory().current_bytes;
  ops::reset_host_memory_peak();
  const data::PackedBatch row =
      testing::make_row({testing::make_document(kTokens / 2, 1, model.vocab_size, 1),
                         testing::make_document(kTokens / 2, 1, model.vocab_size, 2)},
                        0);
  dist::run_ranks(static_cast<int>(test.sp), [&](dist::Communicator& world) {
    at::set_num_threads(1);
    model::Parameters parameters(
        config::build_registry(model, spec),
        test.dtype == base::Dtype::kFloat32 ? at::kFloat : at::kBFloat16, at::kCPU, std::nullopt,
        test.sharded ? std::optional(model::RankShare{world.rank(), world.size()}) : std::nullopt);
    testing::randomise(parameters, 1);
    train::AdamW optimizer(parameters, {.state_dtype = test.moments});
    dist::UlyssesExchange exchange(
        world, config::split_heads(model.num_heads, model.num_kv_heads, test.sp), model.head_dim);
    model::UlyssesAttention attention(model, exchange);
    attention.set_head_groups(test.form.attention_groups);
    std::unique_ptr<model::WeightStore> store;
    if (test.sharded) {
      store = std::make_unique<model::ShardedWeightStore>(model, parameters, 2.0, world);
    } else {
      store = std::make_unique<model::ResidentWeightStore>(model, parameters, 2.0);
    }
    model::DecoderModel decoder(
        model, *store, attention,
        config::activation_policy_of_layers(test.policy, model.num_layers),
        {.host = {}, .mlp_tile_rows = test.form.mlp_tile_rows, .reruns_u = test.form.reruns_u});
    model::FlatGradSink sink(parameters);
    decoder.forward_backward(dist::shard_row(row, test.sp, world.rank()), 1e-3,
                             {.lora_dropout = test.dropout}, sink);
    optimizer.step(1e-3, 1.0);
  });
  return ops::host_memory().peak_bytes - before;
}

class PlannedBytes : public ::testing::TestWithParam<Case> {};

TEST_P(PlannedBytes, AreWithinTenPercentOfWhatIsAllocated) {
  const Case& test = GetParam();
  const config::ModelConfig model = medium_model(test.vocab);
  const config::TuningSpec spec = testing::tiny_tuning(model, test.tuning);
  const auto registry = config::build_registry(model, spec);
  const plan::MemoryRequest request{.model = &model,
                                    .registry = registry,
                                    .dtype = test.dtype,
                                    .optimizer_dtype = test.moments,
                                    .mesh = {.dp = 1, .sp = test.sp},
                                    .shard_ranks = test.sharded ? test.sp : 1,
                                    .row_tokens = kTokens,
                                    .row_targets = kTokens,
                                    .lora_dropout = test.dropout};
  const plan::RankBytes planned = plan::rank_bytes(
      request, config::activation_policy_of_layers(test.policy, model.num_layers), test.form);
  const auto measured =
      static_cast<double>(measured_peak(test, model, spec)) / static_cast<double>(test.sp);
  const auto bytes = static_cast<double>(planned.total());
  EXPECT_NEAR(bytes, measured, 0.10 * measured)
      << "planned " << bytes / 1e6 << " MB, measured " << measured / 1e6 << " MB per rank; weights "
      << planned.weights << " gradients " << planned.gradients << " optimizer " << planned.optimizer
      << " activations " << planned.activations << " working set " << planned.working_set;
}

INSTANTIATE_TEST_SUITE_P(
    Configurations, PlannedBytes,
    ::testing::Values(
        Case{"lora_keep", testing::Tuning::kLora, "A"},
        Case{"lora_attention_kept", testing::Tuning::kLora, "C"},
        Case{"lora_checkpoint", testing::Tuning::kLora, "D"},
        Case{"lora_pairs", testing::Tuning::kLora, "D2"},
        Case{"lora_pairs_from_an_odd_layer", testing::Tuning::kLora, "1xD,5xD2"},
        Case{"lora_mixed", testing::Tuning::kLora, "3xA,3xD"},
        Case{"full_keep", testing::Tuning::kFull, "A"},
        Case{"lora_two_ranks", testing::Tuning::kLora, "A", 2},
        Case{"lora_checkpoint_two_ranks", testing::Tuning::kLora, "D", 2},
        Case{"full_bf16", testing::Tuning::kFull, "C", 1, base::Dtype::kBFloat16},
        Case{"full_bf16_moments", testing::Tuning::kFull, "D", 1, kBF16, 8192, {}, false, kBF16},
        Case{"layers_keep", testing::Tuning::kLora, "A", 1, kF32, 64},
        Case{"layers_checkpoint", testing::Tuning::kLora, "D", 1, kF32, 64},
        Case{"layers_pairs", testing::Tuning::kLora, "D2", 1, kF32, 64},
        Case{"layers_two_ranks", testing::Tuning::kLora, "B", 2, kF32, 64},
        Case{"layers_sharded", testing::Tuning::kLora, "D", 3, kF32, 64, {}, true},
        Case{"layers_tiled", testing::Tuning::kLora, "D", 1, kF32, 64, {3, 128}},
        Case{"layers_dropout", testing::Tuning::kLora, "D", 1, kF32, 64, {}, false, kF32, 0.3},
        Case{"layers_rerun_u", testing::Tuning::kLora, "D", 1, kF32, 64, {3, 128, 0, true}},
        Case{"pairs_rerun_u", testing::Tuning::kLora, "D2", 1, kF32, 64, {3, 128, 0, true}},
        Case{"layers_keep_tiled", testing::Tuning::kLora, "A", 1, kF32, 64, {1, 128}},
        Case{"pairs_tiled", testing::Tuning::kLora, "D2", 1, kF32, 64, {3, 128}},
        Case{"offload_keep", testing::Tuning::kLora, "A+offload", 1, kF32, 64},
        Case{"offload_checkpoint", testing::Tuning::kLora, "D+offload", 1, kF32, 64, {3, 128}},
        Case{"offload_some", testing::Tuning::kLora, "3xB+offload,3xA", 1, kF32, 64}),
    [](const ::testing::TestParamInfo<Case>& test) { return test.param.name; });

/// The states alone, to the border that neighbours are aligned to.
TEST(PlannedBytesOfTheOptimizer, AreThoseThatItTakes) {
  ops::install_counting_allocator();
  const config::ModelConfig model = medium_model(8192);
  const config::TuningSpec spec = testing::tiny_tuning(model, testing::Tuning::kFull);
  model::Parameters parameters(config::build_registry(model, spec), at::kBFloat16);
  for (const base::Dtype moments : {kF32, kBF16}) {
    const std::int64_t before = ops::host_memory().current_bytes;
    const train::AdamW optimizer(parameters, {.state_dtype = moments});
    const std::int64_t taken = ops::host_memory().current_bytes - before;
    const plan::RankBytes planned =
        plan::rank_bytes({.model = &model,
                          .registry = parameters.registry(),
                          .dtype = kBF16,
                          .optimizer_dtype = moments,
                          .mesh = {},
                          .row_tokens = kTokens,
                          .row_targets = kTokens},
                         config::activation_policy_of_layers("A", model.num_layers), {});
    const std::int64_t element_bytes = moments == kF32 ? 8 : 4;
    EXPECT_EQ(planned.optimizer, parameters.trainable_elements() * element_bytes);
    EXPECT_NEAR(static_cast<double>(taken), static_cast<double>(planned.optimizer),
                1e-3 * static_cast<double>(planned.optimizer));
  }
}

}  // namespace
}  // namespace longhaul
