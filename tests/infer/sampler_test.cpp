#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/scratch.h"

namespace longhaul {
namespace {

using infer::choose_token;
using infer::SamplingOptions;

constexpr int kDraws = 20000;

/// Share of each token over many positions.
std::map<std::int32_t, double> shares(const std::vector<float>& logits,
                                      const SamplingOptions& options) {
  std::map<std::int32_t, double> result;
  for (int position = 0; position < kDraws; ++position) {
    result[choose_token(logits, options, 3, position)] += 1.0 / kDraws;
  }
  return result;
}

TEST(Sampler, TakesTheLikeliestTokenAtTemperatureZeroAndTheSmallerIdOnATie) {
  EXPECT_EQ(choose_token(std::vector<float>{0.5F, 2, -1}, {}, 0, 0), 1);
  EXPECT_EQ(choose_token(std::vector<float>{-3, 7, 7, 1}, {}, 0, 5), 1);
  EXPECT_EQ(choose_token(std::vector<float>{-4}, {.temperature = 1}, 0, 0), 0);
}

TEST(Sampler, DrawsTokensWithTheirProbabilities) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  const auto got = shares(logits, {.temperature = 1});
  EXPECT_NEAR(got.at(0), 0.5, 0.015);
  EXPECT_NEAR(got.at(1), 0.3, 0.015);
  EXPECT_NEAR(got.at(2), 0.2, 0.015);
}

TEST(Sampler, SharpensWithALowerTemperature) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  const auto got = shares(logits, {.temperature = 0.5});
  const double sum = 0.25 + 0.09 + 0.04;  // p^(1/T), normalised
  EXPECT_NEAR(got.at(0), 0.25 / sum, 0.015);
  EXPECT_NEAR(got.at(2), 0.04 / sum, 0.015);
}

TEST(Sampler, DrawsOnlyFromTheLikeliestTokensOfProbabilityTopP) {
  const std::vector<float> logits = {std::log(0.2F), std::log(0.5F), std::log(0.3F)};
  const auto two = shares(logits, {.temperature = 1, .top_p = 0.7});
  EXPECT_EQ(two.count(0), 0U);
  EXPECT_NEAR(two.at(1), 0.625, 0.015);
  EXPECT_NEAR(two.at(2), 0.375, 0.015);
  const auto one = shares(logits, {.temperature = 1, .top_p = 0.01});
  EXPECT_EQ(one.size(), 1U);
  EXPECT_EQ(one.count(1), 1U);
}

TEST(Sampler, DependsOnSeedRowAndPositionAlone) {
  const std::vector<float> logits(100, 0.0F);
  const SamplingOptions options{.temperature = 1, .seed = 7};
  std::set<std::int32_t> over_rows;
  std::set<std::int32_t> over_positions;
  std::set<std::int32_t> over_seeds;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(choose_token(logits, options, 2, 9), choose_token(logits, options, 2, 9));
    over_rows.insert(choose_token(logits, options, i, 9));
    over_positions.insert(choose_token(logits, options, 2, i));
    over_seeds.insert(
        choose_token(logits, {.temperature = 1, .seed = static_cast<std::uint64_t>(i)}, 2, 9));
  }
  EXPECT_GT(over_rows.size(), 20U);
  EXPECT_GT(over_positions.size(), 20U);
  EXPECT_GT(over_seeds.size(), 20U);
}

TEST(Sampler, NeverDrawsATokenOfProbabilityZero) {
  const float never = -std::numeric_limits<float>::infinity();
  const auto got = shares({never, 1, never, 0, never}, {.temperature = 3});
  EXPECT_EQ(got.size(), 2U);
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinite}) {
    for (const double temperature : {0.0, 1.0}) {
      const std::vector<float> logits = {0, bad, 1};
      EXPECT_NE(test::message_of<base::UserError>([&] {
                  choose_token(logits, {.temperature = temperature}, 0, 0);
                }).find("--torch_dtype float32"),
                std::string::npos);
    }
  }
}

}  // namespace
}  // namespace longhaul
