// Measured steps on threads-as-ranks: the same loss however the row lies on the ranks and whatever is
// kept, and numbers that belong to what ran.
#include "train/bench_train.h"

#include <gtest/gtest.h>

#include <mutex>

#include "config/named_models.h"
#include "config/options.h"
#include "config/validate.h"
#include "dist/comm_threads.h"
#include "metrics/rates.h"
#include "plan/run_plan.h"

namespace longhaul::train {
namespace {

using Words = std::vector<std::string>;

config::Config bench_config(int ranks, const Words& extra) {
  Words words = {"train", "--device", "cpu", "--torch_dtype", "float32", "--bench_steps", "2"};
  words.insert(words.end(), extra.begin(), extra.end());
  return config::load_config(config::parse_options(config::Command::kBench, words),
                             {.ranks = ranks, .local_ranks = ranks});
}

config::ModelConfig small_model() {
  config::ModelConfig model;
  model.model_type = "llama";
  model.num_layers = 2;
  model.hidden_size = 48;
  model.num_heads = 6;
  model.num_kv_heads = 3;
  model.head_dim = 8;
  model.intermediate_size = 64;
  model.vocab_size = 96;
  model.max_position_embeddings = 4096;
  return model;
}

/// What rank 0 measures on rows of 50 tokens, one measurement per policy.
std::vector<TrainMeasurement> measure(int ranks, const Words& policies, Words extra = {}) {
  extra.insert(extra.end(), {"--shape", "tiny"});
  const config::Config config = bench_config(ranks, extra);
  const config::ModelConfig model = small_model();
  std::vector<TrainMeasurement> result;
  dist::run_ranks(ranks, [&](dist::Communicator& world) {
    // The group owns its world: a group of all ranks stands for it.
    const dist::ProcessGroup group = dist::make_process_group(world.split(0), config.mesh);
    TrainBench bench(config, model, group, at::kCPU);
    for (const std::string& policy : policies) {
      const TrainMeasurement one = bench.measure({.tokens = 50, .policy = policy});
      if (world.rank() == 0) {
        result.push_back(one);
      }
    }
  });
  return result;
}

TEST(TrainBench, LossIsTheSameOnOneAndSeveralRanks) {
  for (const Words& tuning :
       {Words{}, Words{"--train_type", "full"}, Words{"--packing_mean", "9"}}) {
    const double one = measure(1, {"A"}, tuning).front().loss;
    EXPECT_GT(one, 1);
    for (const int ranks : {2, 3}) {
      EXPECT_NEAR(measure(ranks, {"A"}, tuning).front().loss, one, 1e-6 * one) << ranks;
    }
  }
}

TEST(TrainBench, EveryMeasurementStartsFromTheSameState) {
  const std::vector<TrainMeasurement> results = measure(2, {"A", "D", "1xB,1xC", "A"});
  for (const TrainMeasurement& result : results) {
    EXPECT_EQ(result.loss, results.front().loss);
  }
  EXPECT_EQ(plan::choice_text(results[1].plan), "2xD");
  EXPECT_LT(results[1].plan.bytes.activations, results[0].plan.bytes.activations);
}

/// The same model, whatever each rank holds of it.
TEST(TrainBench, ShardedWeightsGiveTheSameLoss) {
  for (const int ranks : {2, 3}) {
    const TrainMeasurement whole = measure(ranks, {"A"}).front();
    const TrainMeasurement sharded = measure(ranks, {"A"}, {"--fsdp", "fsdp2"}).front();
    EXPECT_EQ(sharded.loss, whole.loss) << ranks;
    // Of two layers both are gathered at a time: a rank holds more than the whole.
    EXPECT_GT(sharded.plan.bytes.weights, whole.plan.bytes.weights);
  }
}

TEST(TrainBench, EachRungOfTheLadderIsTheSameStep) {
  const config::Config config = bench_config(2, {"--shape", "tiny"});
  const config::ModelConfig model = small_model();
  std::vector<TrainMeasurement> results;
  dist::run_ranks(2, [&](dist::Communicator& world) {
    const dist::ProcessGroup group = dist::make_process_group(world.split(0), config.mesh);
    TrainBench bench(config, model, group, at::kCPU);
    for (const LadderRung& rung : ladder_rungs(50, /*on_gpu=*/false)) {
      const TrainMeasurement one = bench.measure(rung.point);
      if (world.rank() == 0) {
        results.push_back(one);
      }
    }
  });
  ASSERT_EQ(results.size(), 5U);
  for (const TrainMeasurement& result : results) {
    EXPECT_NEAR(result.loss, results.front().loss, 1e-6 * result.loss);
    EXPECT_FALSE(result.step_s.empty());
  }
  EXPECT_EQ(results[0].plan.form.logits_tile_rows, 50);
  EXPECT_GT(results[2].plan.form.mlp_tile_rows, 0);
  EXPECT_GT(results[3].plan.bytes.activations, results[2].plan.bytes.activations);
  EXPECT_EQ(ladder_rungs(50, /*on_gpu=*/true).size(), 6U);
}

TEST(TrainBench, AFormThatDoesNotFitIsPlannedOnly) {
  const config::Config config =
      bench_config(1, {"--shape", "tiny", "--host_memory_limit", "100000"});
  const config::ModelConfig model = small_model();
  dist::run_ranks(1, [&](dist::Communicator& world) {
    const dist::ProcessGroup group = dist::make_process_group(world.split(0), config.mesh);
    TrainBench bench(config, model, group, at::kCPU);
    const TrainMeasurement result =
        bench.measure({.tokens = 50, .policy = "A", .form = plan::LayerForm{}});
    EXPECT_TRUE(result.step_s.empty());
    EXPECT_FALSE(result.plan.fits);
    EXPECT_GT(result.plan.bytes.total(), 100000);
  });
}

TEST(TrainBench, CountsWhatRan) {
  const TrainMeasurement two = measure(2, {"A"}).front();
  EXPECT_EQ(two.tokens, 50);
  EXPECT_EQ(two.documents, 1);
  EXPECT_EQ(two.attended_length, 50);
  EXPECT_EQ(two.step_s.size(), 2U);
  EXPECT_GT(two.step_s.front(), 0);
  // Each rank sends half of q, k, v (12 heads of 8) and of the output (6 heads) of its 25 tokens,
  // both ways in each of 2 layers, in fp32; three KV heads make one of them live on both ranks.
  const double least = 2 * 2 * 25.0 * (12 + 6) / 2 * 8 * 4;
  EXPECT_GE(two.exchange_bytes, least);
  EXPECT_LT(two.exchange_bytes, 1.3 * least);
  EXPECT_GT(two.exchange_s, 0);
  EXPECT_EQ(measure(1, {"A"}).front().exchange_bytes, 0);
  double sum = two.anatomy.idle_s;
  for (std::size_t kind = 0; kind < ops::kOpKinds.size(); ++kind) {
    const bool is_absent = kind == static_cast<std::size_t>(ops::OpKind::kCopies);
    EXPECT_EQ(two.anatomy.seconds.of[kind] > 0, !is_absent) << ops::kOpKinds[kind];
    sum += two.anatomy.seconds.of[kind];
  }
  EXPECT_EQ(two.anatomy.seconds.host, 0);
  EXPECT_NEAR(sum, two.anatomy.step_s, 1e-9);
  EXPECT_GT(two.anatomy.kernels_s, 0);
  EXPECT_LT(two.anatomy.kernels_s, two.anatomy.step_s);
  const config::ModelConfig qwen = *config::find_named_model("qwen2.5-7b");
  // A layer of Qwen2.5-7B in bf16; 478 KB were counted by hand.
  EXPECT_NEAR(static_cast<double>(elementwise_bytes(qwen, 2)), 478e3, 15e3);
}

TEST(TrainBench, FlopsFollowTheDocumentsAndTheTuning) {
  const metrics::ModelSizes sizes = plan::model_sizes(small_model());
  const TrainMeasurement full = measure(1, {"A"}, {"--train_type", "full"}).front();
  EXPECT_DOUBLE_EQ(full.flops_per_token,
                   metrics::flops_per_token(sizes, {.base_is_trained = true}, 50));
  const TrainMeasurement packed =
      measure(1, {"A"}, {"--lora_rank", "4", "--packing_mean", "9"}).front();
  // Rank 4 on q, k, v, o, gate, up, down of 2 layers: 4 · (inputs + outputs) each.
  const std::int64_t lora = 2 * 4 * ((48 + 48) * 2 + (48 + 24) * 2 + (48 + 64) * 3);
  EXPECT_GT(packed.documents, 1);
  EXPECT_LT(packed.attended_length, 50);
  EXPECT_DOUBLE_EQ(packed.flops_per_token,
                   metrics::flops_per_token(sizes, {.lora_weights = lora}, packed.attended_length));
}

TEST(TrainBench, TheHookSurroundsTheMeasuredSteps) {
  const config::Config config = bench_config(1, {"--shape", "tiny"});
  const config::ModelConfig model = small_model();
  std::vector<bool> calls;
  dist::run_ranks(1, [&](dist::Communicator& world) {
    const dist::ProcessGroup group = dist::make_process_group(world.split(0), config.mesh);
    TrainBench bench(config, model, group, at::kCPU);
    bench.measure({.tokens = 8, .policy = "A"},
                  [&](bool is_measuring) { calls.push_back(is_measuring); });
  });
  EXPECT_EQ(calls, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace longhaul::train
