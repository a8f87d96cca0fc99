// The parity checks see the faults they are there for: each classic mistake of sequence-parallel
// training, made on purpose, must make them fail.
#include <gtest/gtest.h>

#include <cmath>

#include "dist/broken_comm.h"
#include "dist/ulysses.h"
#include "model/layout_runner.h"
#include "model/tiny_models.h"
#include "text/tokenized_sample.h"

namespace longhaul {
namespace {

using testing::Document;
using testing::StepResult;
using testing::Tuning;

std::vector<Document> documents() {
  return {testing::make_document(14, 2, 50, 31), testing::make_document(9, 4, 50, 32),
          testing::make_document(12, 8, 50, 33)};
}

StepResult one_rank() {
  std::vector<data::PackedBatch> rows;
  for (const Document& document : documents()) {
    rows.push_back(testing::make_row({document}, static_cast<std::int64_t>(rows.size())));
  }
  return testing::run_step("smol", Tuning::kLora, {}, rows);
}

bool is_parity(const StepResult& got, const StepResult& want) {
  const bool loss = std::abs(got.loss_sum - want.loss_sum) <= 1e-6 * std::abs(want.loss_sum);
  return loss && testing::compare_gradients(got.gradients, want.gradients, 1e-5).empty();
}

/// Owns the identity communicator that the exchange below talks through.
struct IdentityHolder {
  explicit IdentityHolder(dist::Communicator& real) : identity(real) {}
  dist_test::IdentityExchange identity;
};

class ExchangeWithoutMessages final : private IdentityHolder, public dist::UlyssesExchange {
 public:
  ExchangeWithoutMessages(dist::Communicator& real, std::vector<config::RankHeads> heads,
                          std::int64_t head_dim)
      : IdentityHolder(real), dist::UlyssesExchange(identity, std::move(heads), head_dim) {}
};

template <typename Exchange>
testing::StepOptions with_exchange() {
  testing::StepOptions options;
  options.make_exchange = [](dist::Communicator& comm, std::vector<config::RankHeads> heads,
                             std::int64_t head_dim) {
    return std::make_unique<Exchange>(comm, std::move(heads), head_dim);
  };
  return options;
}

TEST(Faults, TheRightExchangePasses) {
  const auto row = testing::make_row(documents(), 0);
  EXPECT_TRUE(is_parity(testing::run_step("smol", Tuning::kLora, {.sp = 2}, {row}), one_rank()));
}

TEST(Faults, AnIdentityExchangeIsSeen) {
  const auto row = testing::make_row(documents(), 0);
  const StepResult got = testing::run_step("smol", Tuning::kLora, {.sp = 2}, {row},
                                           with_exchange<ExchangeWithoutMessages>());
  EXPECT_FALSE(is_parity(got, one_rank()));
}

TEST(Faults, KvCopiesThatAreNotSummedAreSeen) {
  const auto row = testing::make_row(documents(), 0);
  const StepResult got = testing::run_step("smol", Tuning::kLora, {.sp = 2}, {row},
                                           with_exchange<dist_test::UnsummedKvCopies>());
  const StepResult want = one_rank();
  EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum) << "only gradients go wrong";
  EXPECT_FALSE(is_parity(got, want));
}

TEST(Faults, DocumentsThatAttendToEachOtherAreSeen) {
  auto row = testing::make_row(documents(), 0);
  row.cu_seqlens = {0, static_cast<std::int32_t>(row.num_tokens())};
  row.sample_ids = {0};
  EXPECT_FALSE(is_parity(testing::run_step("smol", Tuning::kLora, {}, {row}), one_rank()));
}

TEST(Faults, LabelsShiftedAfterShardingAreSeen) {
  // Every shard's last token loses its target, as when each rank shifts its own labels.
  auto row = testing::make_row(documents(), 0);
  for (const config::Range shard : config::split_tokens(row.num_tokens(), 2)) {
    row.labels[static_cast<std::size_t>(shard.end - 1)] = text::kNoLabel;
  }
  const StepResult got = testing::run_step("smol", Tuning::kLora, {.sp = 2}, {row});
  EXPECT_FALSE(is_parity(got, one_rank()));
}

TEST(Faults, AMeanOfMeansIsAnotherLoss) {
  // Mean of the documents' mean losses instead of the sum over the count of targets.
  double mean_of_means = 0;
  for (const Document& document : documents()) {
    const StepResult part =
        testing::run_step("smol", Tuning::kLora, {}, {testing::make_row({document}, 0)});
    mean_of_means += part.loss_sum / static_cast<double>(part.targets) / 3.0;
  }
  const StepResult want = one_rank();
  const double right = want.loss_sum / static_cast<double>(want.targets);
  EXPECT_GT(std::abs(mean_of_means - right), 1e-4 * right);
}

}  // namespace
}  // namespace longhaul
