// What a checkpoint holds, when it is best, which ones are kept, and what must be equal to resume.
#include "train/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/safetensors.h"
#include "model/tiny_models.h"
#include "train/checkpoint_files.h"
#include "train/tiny_run.h"
#include "train/weight_files.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TinyRun;
using testing::Words;

/// A writer over a tiny model that never trains.
struct Subject {
  explicit Subject(const Words& extra = {}, bool full = false)
      : config(run.config("out", extra)),
        parameters(
            config::build_registry(
                run.model(), testing::tiny_tuning(run.model(), full ? testing::Tuning::kFull
                                                                    : testing::Tuning::kLora)),
            at::kFloat),
        optimizer(parameters, {}) {
    testing::randomise(parameters, 1);
    fs::create_directories(run.path("out"));
    CheckpointParts parts{
        .config = &config,
        .parameters = &parameters,
        .optimizer = &optimizer,
        .run_folder = run.path("out"),
        .model_folder = run.path("model"),
        .adapter = full ? std::nullopt : std::optional(AdapterConfig{.target_modules = {"q_proj"}}),
        .weights_dtype = base::Dtype::kBFloat16,
        .identity = {{"seed", 1}, {"model", "tiny"}}};
    writer = std::make_unique<CheckpointWriter>(std::move(parts));
  }
  void save(std::int64_t step, std::optional<double> eval_loss = std::nullopt) {
    writer->save({.global_step = step,
                  .epoch = 0.5,
                  .max_steps = 100,
                  .eval_loss = eval_loss,
                  .log_history = &history});
  }
  [[nodiscard]] fs::path out(const std::string& name = "") const { return run.path("out") / name; }
  [[nodiscard]] std::vector<std::string> names(const fs::path& folder) const {
    std::vector<std::string> list;
    for (const auto& entry : fs::directory_iterator(folder)) {
      list.push_back(entry.path().filename().string());
    }
    std::sort(list.begin(), list.end());
    return list;
  }
  TinyRun run;
  config::Config config;
  model::Parameters parameters;
  AdamW optimizer;
  std::vector<HistoryEntry> history;
  std::unique_ptr<CheckpointWriter> writer;
};

TEST(Checkpoints, OfAnAdapterHoldPeftsFilesAndTheTrainingState) {
  Subject setup;
  setup.save(7);
  EXPECT_THAT(
      setup.names(setup.out("checkpoint-7")),
      ElementsAre("adapter_config.json", "adapter_model.safetensors", "args.json", "manifest.json",
                  "optimizer.safetensors", "trainer_state.json", "training_state.json"));
  EXPECT_FALSE(find_damage(setup.out("checkpoint-7")).has_value());
  const TrainerState state = read_trainer_state(setup.out("checkpoint-7"));
  EXPECT_EQ(state.global_step, 7);
  EXPECT_EQ(state.max_steps, 100);
  EXPECT_EQ(state.epoch, 0.5);
}

TEST(Checkpoints, OfAFullModelCanBeLoadedOnTheirOwn) {
  Subject setup({"--train_type", "full"}, true);
  setup.save(3);
  EXPECT_THAT(setup.names(setup.out("checkpoint-3")),
              ElementsAre("args.json", "config.json", "manifest.json", "model.safetensors",
                          "optimizer.safetensors", "tokenizer.json", "trainer_state.json",
                          "training_state.json"));
  // The type of the file is that of the weights.
  const config::ModelConfig saved = config::read_model_config(setup.out("checkpoint-3"));
  EXPECT_EQ(saved.dtype, base::Dtype::kBFloat16);
  EXPECT_EQ(saved.hidden_size, setup.run.model().hidden_size);
  EXPECT_EQ(base::SafetensorsReader(setup.out("checkpoint-3")).at("model.norm.weight").dtype,
            base::Dtype::kBFloat16);
}

TEST(Checkpoints, CanLeaveTheTrainingStateOut) {
  Subject setup({"--save_only_model", "true"});
  setup.save(7);
  EXPECT_THAT(setup.names(setup.out("checkpoint-7")),
              ElementsAre("adapter_config.json", "adapter_model.safetensors", "args.json",
                          "manifest.json", "trainer_state.json"));
}

TEST(Checkpoints, TheLowestEvaluationLossIsBest) {
  Subject setup({"--create_checkpoint_symlink", "true"});
  EXPECT_EQ(setup.writer->summary().best_model_checkpoint, "");
  setup.save(1);
  EXPECT_EQ(setup.writer->summary().best_metric, std::nullopt);
  EXPECT_FALSE(fs::exists(setup.out("best")));
  setup.save(2, 3.0);
  setup.save(3, 2.0);
  setup.save(4, 2.0);  // equal is not better
  setup.save(5, 2.5);
  setup.save(6);
  const metrics::RunSummary summary = setup.writer->summary();
  EXPECT_EQ(summary.best_model_checkpoint, setup.out("checkpoint-3").string());
  EXPECT_EQ(summary.best_metric, 2.0);
  EXPECT_EQ(summary.last_model_checkpoint, setup.out("checkpoint-6").string());
  EXPECT_EQ(fs::canonical(setup.out("best")), fs::canonical(setup.out("checkpoint-3")));
  EXPECT_EQ(fs::canonical(setup.out("last")), fs::canonical(setup.out("checkpoint-6")));
  EXPECT_EQ(read_trainer_state(setup.out("checkpoint-3")).best_model_checkpoint,
            setup.out("checkpoint-3").string());
  EXPECT_EQ(read_trainer_state(setup.out("checkpoint-5")).best_metric, 2.0);
}

TEST(Checkpoints, ALimitNeverRemovesTheBestOrTheNewest) {
  Subject setup({"--save_total_limit", "2"});
  const auto left = [&] { return setup.names(setup.out()); };
  setup.save(1, 5.0);
  setup.save(2, 1.0);
  setup.save(3, 4.0);
  EXPECT_THAT(left(), ElementsAre("checkpoint-2", "checkpoint-3"));
  setup.save(4, 3.0);
  EXPECT_THAT(left(), ElementsAre("checkpoint-2", "checkpoint-4"));
  setup.save(5, 0.5);
  EXPECT_THAT(left(), ElementsAre("checkpoint-4", "checkpoint-5"));
  Subject one({"--save_total_limit", "1"});
  one.save(1, 1.0);
  one.save(2, 2.0);
  EXPECT_THAT(one.names(one.out()), ElementsAre("checkpoint-1", "checkpoint-2"));
  one.save(3, 0.5);
  EXPECT_THAT(one.names(one.out()), ElementsAre("checkpoint-3"));
}

TEST(Checkpoints, OfAResumedRunGoOnWithTheBestOfTheEarlierOne) {
  Subject setup;
  setup.writer->continue_from({.best_metric = 1.5, .best_model_checkpoint = "/old/checkpoint-9"},
                              "/old/checkpoint-12");
  EXPECT_EQ(setup.writer->summary().last_model_checkpoint, "/old/checkpoint-12");
  setup.save(10, 2.0);
  EXPECT_EQ(setup.writer->summary().best_model_checkpoint, "/old/checkpoint-9");
  EXPECT_EQ(read_trainer_state(setup.out("checkpoint-10")).best_metric, 1.5);
  setup.save(11, 1.0);
  EXPECT_EQ(setup.writer->summary().best_model_checkpoint, setup.out("checkpoint-11").string());
}

TEST(Checkpoints, AreWholeOrAbsent) {
  Subject setup;
  setup.save(1);
  const auto before = TinyRun::files(setup.out("checkpoint-1"));
  {
    const test::FileSizeLimit limit(15000);  // the optimizer's file is larger
    EXPECT_THROW(setup.save(2), base::SystemError);
  }
  EXPECT_THAT(setup.names(setup.out()), ElementsAre("checkpoint-1"));
  EXPECT_EQ(setup.writer->summary().last_model_checkpoint, setup.out("checkpoint-1").string());
  setup.parameters.flat_masters().add_(1);
  setup.save(2);
  EXPECT_THAT(setup.names(setup.out()), ElementsAre("checkpoint-1", "checkpoint-2"));
  EXPECT_EQ(TinyRun::files(setup.out("checkpoint-1")), before);  // nothing changes later
}

TEST(ResumeIdentity, EqualFieldsGiveTheStep) {
  const test::ScratchFolder folder;
  const RunIdentity identity = {{"seed", 42}, {"LoRA", "rank 8"}, {"targets", {"q", "v"}}};
  write_training_state(folder.path(), identity, 12);
  EXPECT_EQ(check_resumable(folder.path(), identity), 12);
}

TEST(ResumeIdentity, EveryDifferenceIsListed) {
  const test::ScratchFolder folder;
  write_training_state(folder.path(), {{"seed", 42}, {"LoRA", "rank 8"}, {"data", "abc"}}, 12);
  const RunIdentity now = {{"seed", 43}, {"LoRA", "rank 8"}, {"data", "abd"}, {"packing", true}};
  const std::string error =
      test::message_of<base::UserError>([&] { check_resumable(folder.path(), now); });
  EXPECT_THAT(error, HasSubstr("seed differs from the run that wrote"));
  EXPECT_THAT(error, HasSubstr("got 43, expected 42"));
  EXPECT_THAT(error, AllOf(HasSubstr("data differs"), HasSubstr("got abd, expected abc")));
  EXPECT_THAT(error, HasSubstr("packing differs"));
  EXPECT_THAT(error, Not(HasSubstr("LoRA")));
}

TEST(ResumeIdentity, AFieldThatIsGoneIsADifferenceToo) {
  const test::ScratchFolder folder;
  write_training_state(folder.path(), {{"seed", 42}, {"neftune", 5}}, 12);
  EXPECT_THAT(test::message_of<base::UserError>([&] {
                check_resumable(folder.path(), {{"seed", 42}});
              }),
              HasSubstr("neftune differs"));
}

TEST(ResumeIdentity, AFolderWithoutTrainingStateIsRefused) {
  const test::ScratchFolder folder;
  EXPECT_THAT(test::message_of<base::UserError>([&] { check_resumable(folder.path(), {}); }),
              HasSubstr("--save_only_model"));
  test::put_file(folder / "training_state.json", "[]");
  EXPECT_THAT(test::message_of<base::UserError>([&] { check_resumable(folder.path(), {}); }),
              HasSubstr("not the state of a training run"));
}

TEST(ResumeIdentity, AFolderThatCannotBeLookedAtIsRefused) {
  const std::filesystem::path unreadable = std::string(300, 'x');
  EXPECT_THAT(test::message_of<base::UserError>([&] { check_resumable(unreadable, {}); }),
              HasSubstr("--resume_from_checkpoint: cannot be looked at: File name too long"));
}

}  // namespace
}  // namespace longhaul::train
