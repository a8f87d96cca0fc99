// One optimizer step and one evaluation on layouts of threads-as-ranks: the loss is the quotient of
// all targets' losses and their number, by the plain formula in fp64, in every layout.
#include "train/train_step.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/scratch.h"
#include "data/store_writer.h"
#include "dist/comm_threads.h"
#include "dist/process_group.h"
#include "model/reference_model.h"
#include "model/sharded_weight_store.h"
#include "model/tiny_models.h"
#include "text/tokenized_sample.h"

namespace longhaul::train {
namespace {

using testing::Document;
using ::testing::HasSubstr;
using testing::Tuning;

constexpr const char* kModel = "smol";

/// Nine documents: one without a target, one of one token, odd lengths; the last makes a partial
/// step of its own when four go into a step.
std::vector<Document> documents() {
  const std::int64_t vocab = testing::tiny_model(kModel).vocab_size;
  std::vector<Document> list;
  const std::pair<std::int64_t, std::int64_t> shapes[] = {
      {9, 2}, {14, 14}, {1, 0}, {5, 1}, {12, 10}, {3, 1}, {17, 4}, {2, 1}, {8, 5}};
  for (const auto& [length, first] : shapes) {
    list.push_back(testing::make_document(length, first, vocab, 60 + list.size()));
  }
  return list;
}

data::TokenStore make_store(const std::filesystem::path& folder,
                            const std::vector<Document>& samples) {
  {
    data::StoreWriter writer(folder / "samples.store", folder / "samples.tmp");
    for (std::size_t i = 0; i < samples.size(); ++i) {
      writer.add_row(0, {.offset = 0, .bytes = 1, .line = i + 1},
                     {{text::TokenizedSample{samples[i].ids, samples[i].labels}}});
    }
    writer.finish({.key = "{}", .files = {"made.jsonl"}, .report = {}});
  }
  std::string fault;
  auto file = data::StoreFile::open(folder / "samples.store", fault);
  EXPECT_EQ(fault, "");
  std::vector<std::int64_t> order(samples.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return {file, order};
}

struct Layout {
  std::int64_t dp = 1;
  std::int64_t sp = 1;
  std::int64_t batch = 1;
  bool sharded = false;
  std::int64_t num_layers = 2;
  base::Dtype moments = base::Dtype::kFloat32;
};

/// Four sequences per step in file order, whatever the layout.
config::Config make_config(const Layout& layout) {
  config::Config config;
  config.mesh = {.dp = layout.dp, .sp = layout.sp};
  config.train.per_device_train_batch_size = layout.batch;
  config.train.per_device_eval_batch_size = layout.batch;
  config.accumulation = 4 / (layout.batch * layout.dp);
  config.data.train_dataloader_shuffle = false;
  config.train.max_steps = 3;
  config.train.max_grad_norm = 0.5;
  return config;
}

/// One rank's model, optimizer and step parts.
struct Rank {
  Rank(const config::Config& options, dist::Communicator& comm, Tuning tuning,
       const Layout& layout = {})
      : config(options),
        model(tiny_model(layout.num_layers)),
        spec(testing::tiny_tuning(model, tuning)),
        parameters(config::build_registry(model, spec), at::kFloat, at::kCPU, std::nullopt,
                   layout.sharded ? std::optional(model::RankShare{comm.rank(), comm.size()})
                                  : std::nullopt),
        group(dist::make_process_group(comm.split(0), config.mesh)),
        exchange(*group.sp,
                 config::split_heads(model.num_heads, model.num_kv_heads, config.mesh.sp),
                 model.head_dim),
        attention(model, exchange),
        store(make_store(layout.sharded)),
        decoder(model, *store, attention,
                std::vector<config::LayerPolicy>(static_cast<std::size_t>(model.num_layers))),
        optimizer(parameters, {.state_dtype = layout.moments, .seed = 42}) {
    testing::randomise(parameters, 7);
  }
  static config::ModelConfig tiny_model(std::int64_t num_layers) {
    config::ModelConfig shape = testing::tiny_model(kModel);
    shape.num_layers = num_layers;
    return shape;
  }
  [[nodiscard]] std::unique_ptr<model::WeightStore> make_store(bool sharded) const {
    const double scale = spec.lora ? spec.lora->scale() : 1.0;
    if (sharded) {
      return std::make_unique<model::ShardedWeightStore>(model, parameters, scale, *group.world);
    }
    return std::make_unique<model::ResidentWeightStore>(model, parameters, scale);
  }
  [[nodiscard]] StepParts parts() {
    return {.config = &config,
            .world = group.world.get(),
            .sp = group.sp.get(),
            .model = &decoder,
            .parameters = &parameters,
            .optimizer = &optimizer};
  }
  const config::Config& config;
  config::ModelConfig model;
  config::TuningSpec spec;
  model::Parameters parameters;
  dist::ProcessGroup group;
  dist::UlyssesExchange exchange;
  model::UlyssesAttention attention;
  std::unique_ptr<model::WeightStore> store;
  model::DecoderModel decoder;
  AdamW optimizer;
};

struct RunOutcome {
  std::vector<StepOutcome> steps;
  EvalOutcome evaluation;  // before the first step
  at::Tensor masters;      // after the last
};

constexpr double kRate = 1e-3;
const std::function<std::int64_t()> kNoSignal = [] { return std::int64_t{0}; };

RunOutcome run_layout(const Layout& layout, Tuning tuning) {
  const test::ScratchFolder folder;
  const data::TokenStore store = make_store(folder.path(), documents());
  const config::Config config = make_config(layout);
  RunOutcome outcome;
  std::mutex mutex;
  dist::run_ranks(static_cast<int>(config.mesh.ranks()), [&](dist::Communicator& world) {
    at::set_num_threads(1);
    Rank rank(config, world, tuning, layout);
    data::TrainSchedule schedule(store, config);
    const EvalOutcome evaluation = run_evaluation(rank.parts(), store);
    std::vector<StepOutcome> steps;
    for (std::int64_t step = 0; step < 3; ++step) {
      steps.push_back(run_step(rank.parts(), store, schedule.step(step), kRate, kNoSignal));
    }
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) {
      outcome = {steps, evaluation, rank.parameters.flat_masters().clone()};
    } else {  // every rank knows the same
      EXPECT_EQ(steps.back().loss, steps.back().loss);
    }
  });
  return outcome;
}

/// Loss quotient, gradient norm and counts of documents [begin, end) at given weights.
struct Expected {
  double loss = 0;
  double norm = 0;
  std::int64_t tokens = 0;
  testing::ReferenceResult sums;
};
Expected expected(const model::Parameters& weights, const config::TuningSpec& spec,
                  std::size_t begin, std::size_t end) {
  std::vector<Document> chosen;
  std::int64_t targets = 0;
  Expected result;
  for (std::size_t i = begin; i < end; ++i) {
    chosen.push_back(documents()[i]);
    result.tokens += static_cast<std::int64_t>(chosen.back().ids.size());
    for (const std::int32_t label : chosen.back().labels) {
      targets += label != text::kNoLabel ? 1 : 0;
    }
  }
  result.sums = testing::reference_step(testing::tiny_model(kModel), weights,
                                        spec.lora ? spec.lora->scale() : 1.0, chosen,
                                        1.0 / static_cast<double>(targets));
  EXPECT_EQ(result.sums.targets, targets);
  result.loss = result.sums.loss_sum / static_cast<double>(targets);
  for (const auto& [name, gradient] : result.sums.gradients) {
    result.norm += gradient.pow(2).sum().item<double>();
  }
  result.norm = std::sqrt(result.norm);
  return result;
}

void expect_step(const StepOutcome& got, const Expected& want) {
  EXPECT_NEAR(got.loss, want.loss, 1e-6 * want.loss);
  EXPECT_NEAR(got.grad_norm, want.norm, 1e-5 * want.norm);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.target_tokens, want.sums.targets);
  EXPECT_EQ(got.correct_tokens, want.sums.correct);
}

class TrainStep : public ::testing::TestWithParam<Tuning> {};

INSTANTIATE_TEST_SUITE_P(Tuning, TrainStep, ::testing::Values(Tuning::kLora, Tuning::kFull),
                         [](const auto& test) {
                           return test.param == Tuning::kLora ? "lora" : "full";
                         });

/// Runs the plain formula step by step: gradient in fp64, clip, AdamW in double.
TEST_P(TrainStep, EqualsPlainTrainingStepByStep) {
  const config::ModelConfig model = testing::tiny_model(kModel);
  const config::TuningSpec spec = testing::tiny_tuning(model, GetParam());
  const config::Config config = make_config({});
  const test::ScratchFolder folder;
  const data::TokenStore store = make_store(folder.path(), documents());
  dist::run_ranks(1, [&](dist::Communicator& world) {
    Rank rank(config, world, GetParam());
    data::TrainSchedule schedule(store, config);
    std::map<std::string, std::pair<at::Tensor, at::Tensor>> moments;
    for (std::size_t step = 0; step < 3; ++step) {
      const Expected want =
          expected(rank.parameters, spec, step * 4, std::min<std::size_t>(step * 4 + 4, 9));
      std::map<std::string, at::Tensor> weights;
      const double factor = std::min(1.0, 0.5 / (want.norm + 1e-6));
      for (const auto& [name, raw] : want.sums.gradients) {
        const std::int64_t param = rank.parameters.find(name);
        const config::ParamSpec& entry =
            rank.parameters.registry()[static_cast<std::size_t>(param)];
        const at::Tensor gradient = raw * factor;
        auto& [m, v] = moments[name];
        m = step == 0 ? 0.1 * gradient : 0.9 * m + 0.1 * gradient;
        v = step == 0 ? 0.05 * gradient * gradient : 0.95 * v + 0.05 * gradient * gradient;
        const auto t = static_cast<double>(step + 1);
        at::Tensor weight = rank.parameters.master(param).to(at::kDouble);
        weight =
            weight * (1 - kRate * (entry.decay ? 0.1 : 0.0)) -
            kRate * (m / (1 - std::pow(0.9, t))) / ((v / (1 - std::pow(0.95, t))).sqrt() + 1e-8);
        weights[name] = weight;
      }
      expect_step(run_step(rank.parts(), store, schedule.step(static_cast<std::int64_t>(step)),
                           kRate, kNoSignal),
                  want);
      for (const auto& [name, weight] : weights) {
        const at::Tensor got = rank.parameters.master(rank.parameters.find(name)).to(at::kDouble);
        // The sign of a tiny gradient decides a whole step of AdamW: compare in the mean.
        EXPECT_LE((got - weight).norm().item<double>(), 2e-4 * kRate * std::sqrt(weight.numel()))
            << name << " after step " << step;
      }
    }
  });
}

TEST_P(TrainStep, EveryLayoutTakesTheSameSteps) {
  const RunOutcome one = run_layout({}, GetParam());
  EXPECT_EQ(one.steps[2].target_tokens, 3);  // the partial step's own count
  for (const Layout& layout :
       {Layout{.dp = 2}, Layout{.sp = 2}, Layout{.dp = 2, .sp = 2}, Layout{.dp = 1, .sp = 3},
        Layout{.batch = 4}, Layout{.dp = 4}, Layout{.dp = 2, .sp = 1, .batch = 2}}) {
    const RunOutcome many = run_layout(layout, GetParam());
    for (std::size_t step = 0; step < 3; ++step) {
      EXPECT_NEAR(many.steps[step].loss, one.steps[step].loss, 2e-6 * one.steps[step].loss);
      EXPECT_NEAR(many.steps[step].grad_norm, one.steps[step].grad_norm,
                  2e-5 * one.steps[step].grad_norm);
      EXPECT_EQ(many.steps[step].tokens, one.steps[step].tokens);
      EXPECT_EQ(many.steps[step].target_tokens, one.steps[step].target_tokens);
      EXPECT_EQ(many.steps[step].correct_tokens, one.steps[step].correct_tokens);
    }
    EXPECT_NEAR(many.evaluation.loss, one.evaluation.loss, 1e-6 * one.evaluation.loss);
    EXPECT_EQ(many.evaluation.token_acc, one.evaluation.token_acc);
    EXPECT_EQ(many.evaluation.target_tokens, one.evaluation.target_tokens);
    EXPECT_LE((many.masters - one.masters).norm().item<double>(),
              1e-5 * one.masters.norm().item<double>());
  }
}

/// Gradients differ by the rounding of fp32 sums; what is drawn to round the moments does not.
TEST(TrainStepWithBf16Moments, EveryLayoutTakesTheSameSteps) {
  constexpr base::Dtype kSmall = base::Dtype::kBFloat16;
  const RunOutcome exact = run_layout({}, Tuning::kFull);
  const RunOutcome one = run_layout({.moments = kSmall}, Tuning::kFull);
  EXPECT_FALSE(one.masters.equal(exact.masters));
  for (const Layout& layout :
       {Layout{.dp = 2, .moments = kSmall}, Layout{.sp = 2, .moments = kSmall},
        Layout{.dp = 2, .sp = 2, .moments = kSmall}, Layout{.batch = 4, .moments = kSmall}}) {
    const RunOutcome many = run_layout(layout, Tuning::kFull);
    EXPECT_NEAR(many.steps[2].loss, one.steps[2].loss, 2e-6 * one.steps[2].loss);
    // Far nearer to each other than to the steps with exact moments.
    EXPECT_LE((many.masters - one.masters).norm().item<double>(),
              0.1 * (one.masters - exact.masters).norm().item<double>());
  }
}

/// Whether the groups have communicators of their own or are the world.
TEST(TrainStepOutcome, CountsEveryWaitOfEveryRankOnce) {
  const test::ScratchFolder folder;
  const data::TokenStore store = make_store(folder.path(), documents());
  for (const Layout& layout : {Layout{.sp = 2}, Layout{.dp = 2}, Layout{.dp = 2, .sp = 2}}) {
    const config::Config config = make_config(layout);
    std::mutex mutex;
    double said = 0;
    double waited = 0;
    double busy = 0;
    dist::run_ranks(static_cast<int>(config.mesh.ranks()), [&](dist::Communicator& world) {
      at::set_num_threads(1);
      Rank rank(config, world, Tuning::kLora, layout);
      data::TrainSchedule schedule(store, config);
      const StepOutcome step = run_step(rank.parts(), store, schedule.step(0), kRate, kNoSignal);
      const std::lock_guard lock(mutex);
      said += step.comm_wait_s;
      busy += step.comm_busy_s;
      waited += rank.group.world->counters().wait_s;
      waited += rank.group.sp != rank.group.world ? rank.group.sp->counters().wait_s : 0;
    });
    EXPECT_NEAR(said, waited, 1e-9);
    EXPECT_GT(waited, 0);
    EXPECT_EQ(busy > 0, layout.sp > 1);
  }
}

/// Of the last step and of the last round of the evaluation all data-parallel groups but one have
/// no row.
TEST(TrainStepWithSharding, GivesTheBitsOfWholeWeights) {
  for (Layout layout : {Layout{.dp = 2}, Layout{.sp = 2}, Layout{.dp = 2, .sp = 2}, Layout{.dp = 4},
                        Layout{.dp = 1, .sp = 3}}) {
    layout.num_layers = 4;  // two would stay in the buffers for good
    const RunOutcome whole = run_layout(layout, Tuning::kLora);
    layout.sharded = true;
    const RunOutcome sharded = run_layout(layout, Tuning::kLora);
    EXPECT_EQ(sharded.evaluation.loss, whole.evaluation.loss);
    for (std::size_t step = 0; step < 3; ++step) {
      EXPECT_EQ(sharded.steps[step].loss, whole.steps[step].loss);
      EXPECT_EQ(sharded.steps[step].grad_norm, whole.steps[step].grad_norm);
    }
    EXPECT_TRUE(sharded.masters.equal(whole.masters));
  }
}

TEST(Evaluation, IsTheQuotientOverTheWholeSetEachRowOnce) {
  const config::ModelConfig model = testing::tiny_model(kModel);
  const config::TuningSpec spec = testing::tiny_tuning(model, Tuning::kLora);
  model::Parameters weights(config::build_registry(model, spec), at::kFloat);
  testing::randomise(weights, 7);
  const Expected want = expected(weights, spec, 0, 9);
  const EvalOutcome got = run_layout({}, Tuning::kLora).evaluation;
  EXPECT_NEAR(got.loss, want.loss, 1e-6 * want.loss);
  EXPECT_EQ(got.target_tokens, want.sums.targets);
  EXPECT_DOUBLE_EQ(got.token_acc,
                   static_cast<double>(want.sums.correct) / static_cast<double>(want.sums.targets));
}

TEST(TrainStepFaults, AGradientThatIsNotFiniteChangesNothing) {
  const config::Config config = make_config({});
  const test::ScratchFolder folder;
  const data::TokenStore store = make_store(folder.path(), documents());
  dist::run_ranks(2, [&](dist::Communicator& world) {
    config::Config two = config;
    two.mesh = {.dp = 1, .sp = 2};
    Rank rank(two, world, Tuning::kLora);
    // A frozen weight goes bad: loss and gradients are NaN on every rank.
    rank.parameters.compute(rank.parameters.find("model.layers.1.mlp.up_proj.weight"))[0][0] =
        std::numeric_limits<float>::quiet_NaN();
    const at::Tensor before = rank.parameters.flat_masters().clone();
    data::TrainSchedule schedule(store, two);
    const std::string error = test::message_of<base::UserError>(
        [&] { run_step(rank.parts(), store, schedule.step(1), kRate, kNoSignal); });
    EXPECT_THAT(error, HasSubstr("step 2: loss or gradient norm is not finite"));
    EXPECT_TRUE(rank.parameters.flat_masters().equal(before));
    EXPECT_EQ(rank.optimizer.steps_done(), 0);
    EXPECT_TRUE(
        rank.optimizer.exp_avg(rank.parameters.segments().front()).eq(0).all().item<bool>());
  });
}

TEST(TrainStepFaults, InfinityInOneGradientIsSeen) {
  const config::Config config = make_config({});
  const test::ScratchFolder folder;
  const data::TokenStore store = make_store(folder.path(), documents());
  dist::run_ranks(1, [&](dist::Communicator& world) {
    Rank rank(config, world, Tuning::kLora);
    // Large but finite B overflows what flows back through it while the logits stay finite.
    rank.parameters.compute(rank.parameters.find("model.norm.weight")).fill_(1e38);
    data::TrainSchedule schedule(store, config);
    EXPECT_THROW(run_step(rank.parts(), store, schedule.step(0), kRate, kNoSignal),
                 base::UserError);
    EXPECT_EQ(rank.optimizer.steps_done(), 0);
  });
}

TEST(TrainStepSignals, OneRanksRequestIsKnownToAll) {
  const config::Config config = make_config({.dp = 2});
  const test::ScratchFolder folder;
  const data::TokenStore store = make_store(folder.path(), documents());
  dist::run_ranks(2, [&](dist::Communicator& world) {
    Rank rank(config, world, Tuning::kLora);
    data::TrainSchedule schedule(store, config);
    const auto signal = [&] { return std::int64_t{world.rank() == 1 ? 15 : 0}; };
    EXPECT_EQ(run_step(rank.parts(), store, schedule.step(0), kRate, signal).stop_signal, 15);
    EXPECT_EQ(rank.optimizer.steps_done(), 1);
    EXPECT_EQ(run_step(rank.parts(), store, schedule.step(1), kRate, kNoSignal).stop_signal, 0);
  });
}

TEST(TrainStepEdges, AStepWithoutTargetsHasNoLossAndNoGradient) {
  const test::ScratchFolder folder;
  const data::TokenStore store = make_store(
      folder.path(), {testing::make_document(5, 5, 50, 1), testing::make_document(3, 3, 50, 2)});
  const config::Config config = make_config({});
  dist::run_ranks(1, [&](dist::Communicator& world) {
    Rank rank(config, world, Tuning::kFull);
    data::TrainSchedule schedule(store, config);
    const StepOutcome got = run_step(rank.parts(), store, schedule.step(0), kRate, kNoSignal);
    EXPECT_EQ(got.loss, 0);
    EXPECT_EQ(got.grad_norm, 0);
    EXPECT_EQ(got.target_tokens, 0);
    EXPECT_EQ(got.tokens, 8);
    EXPECT_TRUE(rank.parameters.flat_masters().isfinite().all().item<bool>());
  });
}

}  // namespace
}  // namespace longhaul::train
