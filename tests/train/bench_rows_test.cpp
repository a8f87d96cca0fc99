#include "train/bench_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "dist/shard.h"

namespace longhaul::train {
namespace {

TEST(BenchRows, OneDocumentWithoutAMean) {
  EXPECT_EQ(bench_documents(100, std::nullopt), std::vector<std::int64_t>{100});
}

/// 20,000 documents: their mean and the deviation of their logarithms are the ones asked for.
TEST(BenchRows, DocumentsAreLogNormal) {
  const std::int64_t tokens = 20'000'000;
  std::vector<std::int64_t> lengths = bench_documents(tokens, 1000);
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), tokens);
  lengths.pop_back();  // cut to fit
  const auto count = static_cast<double>(lengths.size());
  double sum = 0;
  double log_sum = 0;
  double log_squares = 0;
  for (const std::int64_t length : lengths) {
    ASSERT_GE(length, 1);
    sum += static_cast<double>(length);
    log_sum += std::log(static_cast<double>(length));
    log_squares += std::pow(std::log(static_cast<double>(length)), 2);
  }
  EXPECT_NEAR(sum / count, 1000, 20);
  const double log_mean = log_sum / count;
  EXPECT_NEAR(std::sqrt(log_squares / count - log_mean * log_mean), 0.8, 0.02);
  EXPECT_EQ(bench_documents(tokens, 1000).front(), lengths.front());
}

TEST(BenchRows, EveryTokenIsATargetAndPositionsRestart) {
  const data::PackedBatch row = bench_row({3, 1, 4}, 10);
  EXPECT_EQ(row.num_tokens(), 8);
  EXPECT_EQ(row.num_targets(), 8);
  EXPECT_EQ(row.num_documents(), 3);
  EXPECT_EQ(row.cu_seqlens, (std::vector<std::int32_t>{0, 3, 4, 8}));
  EXPECT_EQ(row.positions, (std::vector<std::int32_t>{0, 1, 2, 0, 0, 1, 2, 3}));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_GE(row.ids[i], 0);
    EXPECT_LT(row.ids[i], 10);
    if (i > 0) {
      EXPECT_EQ(row.labels[i - 1], row.ids[i]);
    }
  }
  EXPECT_EQ(bench_row({3, 1, 4}, 10).ids, row.ids);
  EXPECT_EQ(dist::shard_row(row, 3, 1).row_tokens(), 8);  // a row that ranks accept
}

}  // namespace
}  // namespace longhaul::train
