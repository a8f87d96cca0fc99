#include "data/batch_builder.h"

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

constexpr std::int32_t kNone = text::kNoLabel;

TEST(BuildBatch, ShiftsLabelsInsideEachDocument) {
  const TempFolder folder;
  const TokenStore store = store_of_lengths(folder.path(), {3, 1, 4}, [](auto sample, auto k) {
    return sample != 2 || k >= 2;  // the last document starts with an untrained part
  });
  const PackedBatch batch = build_batch(store, std::vector<std::int64_t>{0, 1, 2});
  EXPECT_THAT(batch.ids, testing::ElementsAre(0, 1, 2, 1000, 2000, 2001, 2002, 2003));
  EXPECT_THAT(batch.labels, testing::ElementsAre(1, 2, kNone, kNone, kNone, 2002, 2003, kNone));
  EXPECT_THAT(batch.positions, testing::ElementsAre(0, 1, 2, 0, 0, 1, 2, 3));
  EXPECT_THAT(batch.cu_seqlens, testing::ElementsAre(0, 3, 4, 8));
  EXPECT_THAT(batch.sample_ids, testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(batch.num_targets(), 4);
  EXPECT_EQ(batch.num_documents(), 3);
}

TEST(BuildBatch, NeverMakesTheFirstTokenOfADocumentATarget) {
  const TempFolder folder;
  const TokenStore store = store_of_lengths(folder.path(), {5, 2, 1, 7, 1, 1, 3});
  const std::vector<std::int64_t> samples = {6, 0, 2, 5, 3, 1, 4};
  const PackedBatch batch = build_batch(store, samples);
  std::int64_t expected_targets = 0;
  for (std::size_t d = 0; d < samples.size(); ++d) {
    const auto begin = static_cast<std::size_t>(batch.cu_seqlens[d]);
    const auto end = static_cast<std::size_t>(batch.cu_seqlens[d + 1]);
    for (std::size_t i = begin; i < end; ++i) {
      // Ids name their document: a label must be the next id of the same one.
      const bool last = i + 1 == end;
      EXPECT_EQ(batch.labels[i], last ? kNone : batch.ids[i + 1]);
      expected_targets += last ? 0 : 1;
    }
  }
  EXPECT_EQ(batch.num_targets(), expected_targets);
}

TEST(BuildBatch, OfNothingIsAnEmptyBatch) {
  const TempFolder folder;
  const TokenStore store = store_of_lengths(folder.path(), {2});
  const PackedBatch batch = build_batch(store, {});
  EXPECT_EQ(batch.num_tokens(), 0);
  EXPECT_THAT(batch.cu_seqlens, testing::ElementsAre(0));
  EXPECT_EQ(batch.num_targets(), 0);
}

TEST(CountTargets, EqualsTheTargetsOfAllBatchesOfAStep) {
  const TempFolder folder;
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 13; ++i) {
    lengths.push_back(1 + i * 7 % 11);
  }
  const TokenStore store = store_of_lengths(
      folder.path(), lengths, [](auto sample, auto k) { return (sample + k) % 3 == 0; });
  config::Config config;
  config.train.per_device_train_batch_size = 2;
  config.accumulation = 2;
  config.mesh = {.dp = 2, .sp = 1};
  TrainSchedule schedule(store, config);
  for (std::int64_t s = 0; s < 4; ++s) {
    const StepPlan plan = schedule.step(s);
    std::int64_t targets = 0;
    std::int64_t tokens = 0;
    for (const auto& groups : plan.micros) {
      for (const SampleList& samples : groups) {
        const PackedBatch batch = build_batch(store, samples);
        EXPECT_EQ(batch.num_targets(), count_targets(store, samples));
        targets += batch.num_targets();
        tokens += batch.num_tokens();
      }
    }
    EXPECT_EQ(count_targets(store, plan), targets);
    EXPECT_EQ(count_tokens(store, plan), tokens);
  }
}

TEST(DocumentLengths, AreThoseOfAllBatchesOfAStep) {
  const TempFolder folder;
  const TokenStore store = store_of_lengths(folder.path(), {3, 1, 4, 2, 6});
  config::Config config;
  config.train.per_device_train_batch_size = 2;
  config.accumulation = 1;
  config.mesh = {.dp = 2, .sp = 1};
  TrainSchedule schedule(store, config);
  const StepPlan plan = schedule.step(0);
  std::vector<std::int64_t> want;
  for (const SampleList& samples : plan.micros.at(0)) {
    const PackedBatch batch = build_batch(store, samples);
    for (std::size_t i = 1; i < batch.cu_seqlens.size(); ++i) {
      want.push_back(batch.cu_seqlens[i] - batch.cu_seqlens[i - 1]);
    }
  }
  EXPECT_EQ(want.size(), 4U);
  EXPECT_EQ(document_lengths(store, plan), want);
}

}  // namespace
}  // namespace longhaul::data
