// Learning rates against transformers' own schedules (tests/golden/train/schedules.json, made by the
// script beside it).
#include "train/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/scratch.h"

namespace longhaul::train {
namespace {

using config::Schedule;
using ::testing::HasSubstr;

Schedule kind_of(const std::string& name) {
  const std::map<std::string, Schedule> kinds = {
      {"cosine", Schedule::kCosine},
      {"linear", Schedule::kLinear},
      {"constant", Schedule::kConstant},
      {"constant_with_warmup", Schedule::kConstantWithWarmup},
      {"cosine_with_min_lr", Schedule::kCosineWithMinLr}};
  return kinds.at(name);
}

TEST(LrSchedule, EqualsTransformersSchedules) {
  const std::string path = std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/train/schedules.json";
  const base::OrderedJson golden = base::parse_ordered_json(base::read_file(path), path);
  const auto rate = golden["learning_rate"].get<double>();
  ASSERT_GE(golden["cases"].size(), 10U);
  for (const base::OrderedJson& one : golden["cases"]) {
    config::TrainOptions options;
    options.lr_scheduler_type = kind_of(one["name"].get<std::string>());
    options.lr_scheduler_kwargs = one["kwargs"].get<std::map<std::string, double>>();
    options.warmup_steps = one["warmup"].get<std::int64_t>();
    const auto total = one["total"].get<std::int64_t>();
    const LrSchedule schedule(options, rate, total);
    for (std::int64_t step = 0; step < total; ++step) {
      const auto want = one["rates"][static_cast<std::size_t>(step)].get<double>();
      EXPECT_NEAR(schedule.at(step), want, 1e-12 * rate)
          << one["name"] << " " << one["kwargs"] << " step " << step;
    }
  }
}

TEST(LrSchedule, WarmUpIsTheStepsOrTheRoundedUpShare) {
  config::TrainOptions options;
  EXPECT_EQ(warmup_steps(options, 100), 0);
  options.warmup_ratio = 0.05;
  EXPECT_EQ(warmup_steps(options, 100), 5);
  EXPECT_EQ(warmup_steps(options, 101), 6);
  EXPECT_EQ(warmup_steps(options, 1), 1);
  options.warmup_steps = 3;  // wins over the ratio
  EXPECT_EQ(warmup_steps(options, 100), 3);
}

TEST(LrSchedule, RisesFromZeroToTheFullRate) {
  config::TrainOptions options;
  options.warmup_steps = 4;
  const LrSchedule schedule(options, 0.8, 10);
  EXPECT_EQ(schedule.at(0), 0.0);
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(4), 0.8);
  EXPECT_DOUBLE_EQ(schedule.at(7), 0.4);
}

TEST(LrSchedule, RefusesSettingsThatItsKindDoesNotHave) {
  const auto error = [](Schedule kind, const std::string& key) {
    config::TrainOptions options;
    options.lr_scheduler_type = kind;
    options.lr_scheduler_kwargs = {{key, 0.5}};
    return test::message_of<base::UserError>([&] { LrSchedule(options, 1e-3, 10); });
  };
  EXPECT_THAT(error(Schedule::kLinear, "num_cycles"), HasSubstr("--lr_scheduler_kwargs"));
  EXPECT_THAT(error(Schedule::kCosine, "min_lr"), HasSubstr("got min_lr"));
  EXPECT_THAT(error(Schedule::kCosineWithMinLr, "power"), HasSubstr("got power"));
  EXPECT_EQ(error(Schedule::kCosine, "num_cycles"), "<no exception>");
}

}  // namespace
}  // namespace longhaul::train
