#include "train/trainer_state.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/scratch.h"
#include "metrics/records.h"

namespace longhaul::train {
namespace {

using test::get_file;
using test::message_of;
using test::put_file;
using test::ScratchFolder;

TrainerState sample() {
  return {.global_step = 12,
          .max_steps = 100,
          .epoch = 1.0 / 3.0,
          .num_train_epochs = 2.5,
          .best_metric = 2.0 / 3.0,
          .best_model_checkpoint = "/run/checkpoint-5",
          .logging_steps = 5,
          .eval_steps = 7,
          .save_steps = 11,
          .train_batch_size = 2,
          .num_input_tokens_seen = 9'007'199'254'740'993,
          .total_flos = 1e18,
          .log_history = {metrics::sample_step(10), metrics::sample_eval(12)}};
}

TEST(TrainerState, ReadsBackExactly) {
  const ScratchFolder scratch;
  write_trainer_state(scratch.path(), sample());
  const TrainerState back = read_trainer_state(scratch.path());
  EXPECT_EQ(back.global_step, 12);
  EXPECT_EQ(back.max_steps, 100);
  EXPECT_EQ(back.epoch, 1.0 / 3.0);
  EXPECT_EQ(back.num_train_epochs, 3);  // whole epochs, rounded up
  EXPECT_EQ(back.best_metric, 2.0 / 3.0);
  EXPECT_EQ(back.best_model_checkpoint, "/run/checkpoint-5");
  EXPECT_EQ(back.logging_steps, 5);
  EXPECT_EQ(back.eval_steps, 7);
  EXPECT_EQ(back.save_steps, 11);
  EXPECT_EQ(back.train_batch_size, 2);
  EXPECT_EQ(back.num_input_tokens_seen, 9'007'199'254'740'993);
  EXPECT_EQ(back.total_flos, 1e18);
  ASSERT_EQ(back.log_history.size(), 2U);
  EXPECT_EQ(std::get<metrics::StepRecord>(back.log_history[0]).loss, metrics::sample_step().loss);
  EXPECT_EQ(std::get<metrics::EvalRecord>(back.log_history[1]).global_step, 12);
}

TEST(TrainerState, GivesEveryEntryOfTheHistoryItsStep) {
  const ScratchFolder scratch;
  write_trainer_state(scratch.path(), sample());
  const auto json = base::parse_json(get_file(scratch / "trainer_state.json"), "state");
  EXPECT_EQ(json.at("log_history").at(0).at("step"), 10);
  EXPECT_EQ(json.at("log_history").at(1).at("step"), 12);
  EXPECT_EQ(json.at("log_history").at(1).at("eval_loss"), metrics::sample_eval().eval_loss);
}

TEST(TrainerState, WithoutEvaluationHasNoBest) {
  const ScratchFolder scratch;
  for (const std::optional<double> metric :
       {std::optional<double>(), std::optional(std::nan(""))}) {
    TrainerState state = sample();
    state.best_metric = metric;
    state.best_model_checkpoint.clear();
    write_trainer_state(scratch.path(), state);
    const TrainerState back = read_trainer_state(scratch.path());
    EXPECT_EQ(back.best_metric, std::nullopt);
    EXPECT_EQ(back.best_model_checkpoint, "");
  }
}

TEST(TrainerState, NamesFileAndKeyOfAFault) {
  const ScratchFolder scratch;
  write_trainer_state(scratch.path(), sample());
  const auto good = base::parse_ordered_json(get_file(scratch / "trainer_state.json"), "state");
  const auto message_for = [&](const base::OrderedJson& json) {
    put_file(scratch / "trainer_state.json", json.dump());
    const std::string message =
        message_of<base::UserError>([&] { read_trainer_state(scratch.path()); });
    EXPECT_EQ(message.rfind((scratch / "trainer_state.json").string(), 0), 0U) << message;
    return message;
  };
  for (const char* key : {"global_step", "max_steps", "epoch", "log_history", "best_metric"}) {
    base::OrderedJson bad = good;
    bad[key] = "text";
    EXPECT_NE(message_for(bad).find(key), std::string::npos);
  }
  base::OrderedJson bad = good;
  bad.erase("global_step");
  EXPECT_NE(message_for(bad).find("global_step"), std::string::npos);
  bad = good;
  bad["log_history"].push_back(1);
  EXPECT_NE(message_for(bad).find("log_history"), std::string::npos);
  message_for(base::OrderedJson::array());
}

}  // namespace
}  // namespace longhaul::train
