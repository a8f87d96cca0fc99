#include "metrics/record_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "metrics/records.h"

namespace longhaul::metrics {
namespace {

using base::OrderedJson;

std::vector<std::string> keys_of(const OrderedJson& json) {
  std::vector<std::string> keys;
  for (const auto& item : json.items()) {
    keys.push_back(item.key());
  }
  return keys;
}

LogLine read_back(const OrderedJson& json) {
  std::string reason;
  const auto line = from_json(base::parse_ordered_json(json.dump(), "line"), reason);
  EXPECT_TRUE(line.has_value()) << reason;
  return line.value_or(LogLine());
}

TEST(RecordJson, AStepHasExactlyTheDocumentedKeysInOrder) {
  EXPECT_EQ(keys_of(to_json(sample_step())),
            (std::vector<std::string>{"loss",
                                      "grad_norm",
                                      "learning_rate",
                                      "token_acc",
                                      "epoch",
                                      "global_step/max_steps",
                                      "elapsed_time",
                                      "remaining_time",
                                      "memory(GiB)",
                                      "train_speed(s/it)",
                                      "tokens",
                                      "target_tokens",
                                      "tokens_per_second",
                                      "tokens_per_second_per_device",
                                      "mfu",
                                      "host_memory(GiB)",
                                      "comm_share",
                                      "comm_gb_per_s",
                                      "sp",
                                      "dp"}));
}

TEST(RecordJson, AnEvaluationAndASummaryHaveTheirKeys) {
  EXPECT_EQ(keys_of(to_json(sample_eval())),
            (std::vector<std::string>{"eval_loss", "eval_token_acc", "eval_runtime", "epoch",
                                      "global_step/max_steps"}));
  EXPECT_EQ(
      keys_of(to_json(sample_summary())),
      (std::vector<std::string>{"last_model_checkpoint", "best_model_checkpoint", "best_metric",
                                "global_step", "total_parameters", "trainable_parameters"}));
}

TEST(RecordJson, WritesStepsAndTimesAsText) {
  const OrderedJson json = to_json(sample_step());
  EXPECT_EQ(json.at("global_step/max_steps"), "12/100");
  EXPECT_EQ(json.at("elapsed_time"), "1m 3s");
  EXPECT_EQ(json.at("remaining_time"), "2h 2m 2s");
}

TEST(RecordJson, NumbersReadBackExactly) {
  const StepRecord step = sample_step();
  const auto back = std::get<StepRecord>(read_back(to_json(step)));
  EXPECT_EQ(back.loss, step.loss);
  EXPECT_EQ(back.grad_norm, step.grad_norm);
  EXPECT_EQ(back.learning_rate, step.learning_rate);
  EXPECT_EQ(back.token_acc, step.token_acc);
  EXPECT_EQ(back.epoch, step.epoch);
  EXPECT_EQ(back.global_step, 12);
  EXPECT_EQ(back.max_steps, 100);
  EXPECT_EQ(back.elapsed_s, 63);
  EXPECT_EQ(back.remaining_s, 7322);
  EXPECT_EQ(back.memory_gib, step.memory_gib);
  EXPECT_EQ(back.train_speed_s_per_it, step.train_speed_s_per_it);
  EXPECT_EQ(back.tokens, step.tokens);
  EXPECT_EQ(back.target_tokens, step.target_tokens);
  EXPECT_EQ(back.tokens_per_second, step.tokens_per_second);
  EXPECT_EQ(back.tokens_per_second_per_device, step.tokens_per_second_per_device);
  EXPECT_EQ(back.mfu, step.mfu);
  EXPECT_EQ(back.host_memory_gib, step.host_memory_gib);
  EXPECT_EQ(back.comm_share, step.comm_share);
  EXPECT_EQ(back.comm_gb_per_s, step.comm_gb_per_s);
  EXPECT_EQ(back.sp, 2);
  EXPECT_EQ(back.dp, 4);

  const auto eval = std::get<EvalRecord>(read_back(to_json(sample_eval())));
  EXPECT_EQ(eval.eval_loss, sample_eval().eval_loss);
  EXPECT_EQ(eval.eval_token_acc, 0.25);
  EXPECT_EQ(eval.eval_runtime_s, 1.5);
  EXPECT_EQ(eval.epoch, 0.75);
  EXPECT_EQ(eval.global_step, 12);

  const auto summary = std::get<RunSummary>(read_back(to_json(sample_summary())));
  EXPECT_EQ(summary.last_model_checkpoint, sample_summary().last_model_checkpoint);
  EXPECT_EQ(summary.best_model_checkpoint, sample_summary().best_model_checkpoint);
  EXPECT_EQ(summary.best_metric, sample_summary().best_metric);
  EXPECT_EQ(summary.global_step, 100);
  EXPECT_EQ(summary.total_parameters, 134'515'008);
  EXPECT_EQ(summary.trainable_parameters, 4'884'480);
}

TEST(RecordJson, AbsentValuesAreNull) {
  StepRecord step = sample_step();
  step.mfu.reset();
  EXPECT_TRUE(to_json(step).at("mfu").is_null());
  EXPECT_EQ(std::get<StepRecord>(read_back(to_json(step))).mfu, std::nullopt);
  const OrderedJson summary = to_json(RunSummary{});
  EXPECT_TRUE(summary.at("last_model_checkpoint").is_null());
  EXPECT_TRUE(summary.at("best_model_checkpoint").is_null());
  EXPECT_TRUE(summary.at("best_metric").is_null());
  EXPECT_EQ(std::get<RunSummary>(read_back(summary)).last_model_checkpoint, "");
}

TEST(RecordJson, NanAndInfinityBecomeNullAndReadBackAsNan) {
  StepRecord step = sample_step();
  step.loss = std::nan("");
  step.grad_norm = std::numeric_limits<double>::infinity();
  step.mfu = -std::numeric_limits<double>::infinity();
  const OrderedJson json = to_json(step);
  EXPECT_TRUE(json.at("loss").is_null());
  EXPECT_TRUE(json.at("grad_norm").is_null());
  EXPECT_TRUE(json.at("mfu").is_null());
  const auto back = std::get<StepRecord>(read_back(json));
  EXPECT_TRUE(std::isnan(back.loss));
  EXPECT_TRUE(std::isnan(back.grad_norm));
}

TEST(RecordJson, SaysWhatIsWrongWithALine) {
  const std::map<std::string, std::string> faults = {
      {"[]", "not an object"},
      {"{}", "neither"},
      {R"({"loss":"x","global_step/max_steps":"1/2"})", "'loss'"},
      {R"({"loss":1})", "'global_step/max_steps'"},
      {R"({"loss":1,"global_step/max_steps":"1"})", "'global_step/max_steps'"},
      {R"({"loss":1,"global_step/max_steps":"1/2x"})", "'global_step/max_steps'"},
      {R"({"loss":1,"global_step/max_steps":"/2"})", "'global_step/max_steps'"},
      {R"({"loss":1,"global_step/max_steps":12})", "'global_step/max_steps'"},
      {R"({"loss":1,"global_step/max_steps":"1/2","tokens":1.5})", "'tokens'"},
      {R"({"eval_loss":true,"global_step/max_steps":"1/2"})", "'eval_loss'"},
      {R"({"last_model_checkpoint":7})", "'last_model_checkpoint'"}};
  for (const auto& [text, expected] : faults) {
    std::string reason;
    EXPECT_FALSE(from_json(base::parse_ordered_json(text, "line"), reason)) << text;
    EXPECT_NE(reason.find(expected), std::string::npos) << text << " → " << reason;
  }
}

TEST(RecordJson, LeavesUnknownKeysAside) {
  std::string reason;
  EXPECT_TRUE(from_json(
      base::parse_ordered_json(R"({"loss":1,"global_step/max_steps":"1/2","new":[1]})", "line"),
      reason))
      << reason;
}

TEST(Scalars, CarryTheTagsThatTensorBoardShows) {
  std::map<std::string, double> train;
  for (const auto& [tag, value] : scalars(sample_step())) {
    EXPECT_TRUE(train.emplace(tag, value).second) << tag;
  }
  EXPECT_EQ(train.at("train/loss"), sample_step().loss);
  EXPECT_EQ(train.at("train/grad_norm"), sample_step().grad_norm);
  EXPECT_EQ(train.at("train/learning_rate"), sample_step().learning_rate);
  EXPECT_EQ(train.at("train/token_acc"), 0.5);
  EXPECT_EQ(train.at("train/tokens_per_second"), sample_step().tokens_per_second);
  EXPECT_EQ(train.at("train/mfu"), 0.4567);
  StepRecord no_mfu = sample_step();
  no_mfu.mfu.reset();
  for (const auto& [tag, value] : scalars(no_mfu)) {
    EXPECT_NE(tag, "train/mfu");
  }
  EXPECT_EQ(scalars(sample_eval()).front().first, "eval/loss");
  EXPECT_EQ(scalars(sample_eval()).front().second, sample_eval().eval_loss);
}

}  // namespace
}  // namespace longhaul::metrics
