#include "data/schedule.h"

#include <random>

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

config::Config make_config(std::int64_t batch, std::int64_t accumulation, std::int64_t dp,
                           std::int64_t sp = 1) {
  config::Config config;
  config.train.per_device_train_batch_size = batch;
  config.accumulation = accumulation;
  config.mesh = {.dp = dp, .sp = sp};
  config.max_length = 64;
  config.row_length = 64;
  return config;
}

/// The samples of a step in the order in which the contract numbers them: micro-batch, group,
/// place.
SampleList flat(const StepPlan& plan) {
  SampleList all;
  for (const auto& groups : plan.micros) {
    for (const SampleList& samples : groups) {
      all.insert(all.end(), samples.begin(), samples.end());
    }
  }
  return all;
}

SampleList epoch_samples(TrainSchedule& schedule, std::int64_t epoch) {
  SampleList all;
  for (std::int64_t s = 0; s < schedule.steps_per_epoch(); ++s) {
    const SampleList step = flat(schedule.step(epoch * schedule.steps_per_epoch() + s));
    all.insert(all.end(), step.begin(), step.end());
  }
  return all;
}

class ScheduleTest : public testing::Test {
 protected:
  TokenStore store(std::int64_t samples) const {
    std::vector<std::int64_t> lengths;
    std::mt19937 random(3);
    for (std::int64_t i = 0; i < samples; ++i) {
      lengths.push_back(1 + static_cast<std::int64_t>(random() % 60));
    }
    return store_of_lengths(folder_.path(), lengths);
  }

  TempFolder folder_;
};

TEST_F(ScheduleTest, TrainsEverySampleOncePerEpochForAnyLayout) {
  for (const std::int64_t samples : {1, 2, 5, 23}) {
    const TokenStore train = store(samples);
    for (const std::int64_t batch : {1, 3}) {
      for (const std::int64_t accumulation : {1, 4}) {
        for (const std::int64_t dp : {1, 2, 5}) {
          for (const bool packing : {false, true}) {
            auto config = make_config(batch, accumulation, dp);
            config.data.packing = packing;
            TrainSchedule schedule(train, config);
            for (const std::int64_t epoch : {0, 1, 7}) {
              SampleList seen = epoch_samples(schedule, epoch);
              std::sort(seen.begin(), seen.end());
              EXPECT_EQ(seen, single_samples(samples).samples);
            }
          }
        }
      }
    }
  }
}

TEST_F(ScheduleTest, CountsStepsByTheFormula) {
  const TokenStore train = store(23);
  auto config = make_config(2, 2, 1);
  config.train.num_train_epochs = 2.5;
  EXPECT_EQ(TrainSchedule(train, config).steps_per_epoch(), 6);
  EXPECT_EQ(TrainSchedule(train, config).total_steps(), 15);
  config.train.num_train_epochs = 0.01;
  EXPECT_EQ(TrainSchedule(train, config).total_steps(), 1);
  config.train.max_steps = 1000;
  EXPECT_EQ(TrainSchedule(train, config).total_steps(), 1000);
  EXPECT_EQ(TrainSchedule(train, config).step(999).cursor, (Cursor{.epoch = 166, .step = 3}));
}

TEST_F(ScheduleTest, LastStepOfAnEpochHoldsTheTail) {
  const TokenStore train = store(23);
  TrainSchedule schedule(train, make_config(2, 2, 1));
  EXPECT_EQ(schedule.step(4).num_sequences, 4);
  EXPECT_EQ(schedule.step(5).num_sequences, 3);
  EXPECT_EQ(flat(schedule.step(5)).size(), 3U);
  EXPECT_DOUBLE_EQ(schedule.step(5).epoch_fraction, 1.0);
  EXPECT_DOUBLE_EQ(schedule.step(8).epoch_fraction, 1.5);
}

TEST_F(ScheduleTest, GivesEmptyBatchesToGroupsWithoutSequences) {
  const TokenStore train = store(2);
  auto config = make_config(1, 2, 3);
  config.data.train_dataloader_shuffle = false;
  const StepPlan plan = TrainSchedule(train, config).step(0);
  ASSERT_EQ(plan.micros.size(), 2U);
  EXPECT_EQ(plan.micros[0], (std::vector<SampleList>{{0}, {1}, {}}));
  EXPECT_EQ(plan.micros[1], (std::vector<SampleList>{{}, {}, {}}));
}

TEST_F(ScheduleTest, DealsBatchesToGroupsFirstThenToMicroBatches) {
  const TokenStore train = store(16);
  auto config = make_config(2, 2, 2);
  config.data.train_dataloader_shuffle = false;
  const StepPlan plan = TrainSchedule(train, config).step(1);
  EXPECT_EQ(plan.micros[0], (std::vector<SampleList>{{8, 9}, {10, 11}}));
  EXPECT_EQ(plan.micros[1], (std::vector<SampleList>{{12, 13}, {14, 15}}));
}

TEST_F(ScheduleTest, OrderDependsOnGlobalBatchNotOnItsSplit) {
  const TokenStore train = store(23);
  for (const bool packing : {false, true}) {
    const auto order = [&](config::Config config) {
      config.data.packing = packing;
      TrainSchedule schedule(train, config);
      std::vector<SampleList> steps;
      for (std::int64_t s = 0; s < 12; ++s) {
        steps.push_back(flat(schedule.step(s)));
      }
      return steps;
    };
    const auto reference = order(make_config(1, 6, 1));
    EXPECT_EQ(order(make_config(1, 3, 2)), reference);
    EXPECT_EQ(order(make_config(1, 3, 2, 4)), reference);
    EXPECT_EQ(order(make_config(6, 1, 1, 2)), reference);
    EXPECT_EQ(order(make_config(2, 1, 3)), reference);
    EXPECT_EQ(order(make_config(3, 2, 1, 5)), reference);
  }
}

TEST_F(ScheduleTest, EpochsDifferAndSeedsDiffer) {
  const TokenStore train = store(23);
  TrainSchedule schedule(train, make_config(1, 4, 1));
  EXPECT_NE(epoch_samples(schedule, 0), epoch_samples(schedule, 1));
  EXPECT_NE(epoch_samples(schedule, 1), epoch_samples(schedule, 2));
  auto config = make_config(1, 4, 1);
  config.data.data_seed = 43;
  TrainSchedule other(train, config);
  EXPECT_NE(epoch_samples(schedule, 0), epoch_samples(other, 0));
}

TEST_F(ScheduleTest, KeepsFileOrderInEveryEpochWithoutShuffling) {
  const TokenStore train = store(23);
  auto config = make_config(1, 4, 1);
  config.data.train_dataloader_shuffle = false;
  TrainSchedule schedule(train, config);
  EXPECT_EQ(epoch_samples(schedule, 0), single_samples(23).samples);
  EXPECT_EQ(epoch_samples(schedule, 3), single_samples(23).samples);
}

TEST_F(ScheduleTest, ResumingAtAnyStepEqualsGoingOn) {
  const TokenStore train = store(23);
  TrainSchedule running(train, make_config(1, 4, 1));
  for (std::int64_t s = 0; s < 20; ++s) {
    TrainSchedule resumed(train, make_config(1, 4, 1));
    EXPECT_EQ(flat(resumed.step(s)), flat(running.step(s))) << s;
  }
}

TEST_F(ScheduleTest, BoundsEveryBatchByLargestBatchTokens) {
  const TokenStore train = store(40);
  for (const bool packing : {false, true}) {
    auto config = make_config(3, 1, 1);
    config.data.packing = packing;
    TrainSchedule schedule(train, config);
    std::int64_t largest = 0;
    for (std::int64_t s = 0; s < 200; ++s) {
      std::int64_t tokens = 0;
      for (const std::int64_t sample : flat(schedule.step(s))) {
        tokens += train.length(sample);
      }
      largest = std::max(largest, tokens);
    }
    EXPECT_LE(largest, schedule.largest_batch_tokens());
    EXPECT_LE(schedule.largest_batch_tokens(), 3 * 64);
    EXPECT_GT(schedule.largest_batch_tokens(), 0);
  }
}

TEST_F(ScheduleTest, SaysHowFarATokenAttends) {
  const TokenStore train = store(7);
  double tokens = 0;
  double squares = 0;
  for (std::int64_t sample = 0; sample < train.size(); ++sample) {
    const auto length = static_cast<double>(train.length(sample));
    tokens += length;
    squares += length * length;
  }
  EXPECT_DOUBLE_EQ(TrainSchedule(train, make_config(1, 1, 1)).attended_length(), squares / tokens);
}

TEST_F(ScheduleTest, NamesWhatItsOrderDependsOn) {
  const TokenStore train = store(7);
  auto config = make_config(1, 2, 3);
  EXPECT_EQ(TrainSchedule(train, config).identity(),
            "not packed, 7 sequences, 6 per step, shuffled by 42");
  config.data.train_dataloader_shuffle = false;
  EXPECT_THAT(TrainSchedule(train, config).identity(), testing::EndsWith("not shuffled"));
}

TEST_F(ScheduleTest, EvaluatesEveryRowOnceInOrder) {
  for (const std::int64_t samples : {1, 2, 7, 12}) {
    const TokenStore validation = store(samples);
    for (const std::int64_t dp : {1, 2, 5}) {
      for (const std::int64_t batch : {1, 4}) {
        auto config = make_config(9, 9, dp);
        config.train.per_device_eval_batch_size = batch;
        const EvalSchedule schedule(validation, config);
        SampleList seen;
        for (std::int64_t r = 0; r < schedule.num_rounds(); ++r) {
          const auto groups = schedule.round(r);
          ASSERT_EQ(groups.size(), static_cast<std::size_t>(dp));
          for (const SampleList& group : groups) {
            EXPECT_LE(group.size(), static_cast<std::size_t>(batch));
            seen.insert(seen.end(), group.begin(), group.end());
          }
        }
        EXPECT_EQ(seen, single_samples(samples).samples);
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::data
