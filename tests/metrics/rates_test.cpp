// Expected values are computed by hand from the published shapes of the models.
#include "metrics/rates.h"

#include <gtest/gtest.h>

#include <vector>

namespace longhaul::metrics {
namespace {

constexpr ModelSizes kQwen25_7B = {.num_layers = 28,
                                   .hidden = 3584,
                                   .num_query_heads = 28,
                                   .num_kv_heads = 4,
                                   .head_dim = 128,
                                   .intermediate = 18944,
                                   .vocabulary = 152064};
constexpr ModelSizes kLlama31_8B = {.num_layers = 32,
                                    .hidden = 4096,
                                    .num_query_heads = 32,
                                    .num_kv_heads = 8,
                                    .head_dim = 128,
                                    .intermediate = 14336,
                                    .vocabulary = 128256};
constexpr ModelSizes kQwen3_8B = {.num_layers = 36,
                                  .hidden = 4096,
                                  .num_query_heads = 32,
                                  .num_kv_heads = 8,
                                  .head_dim = 128,
                                  .intermediate = 12288,
                                  .vocabulary = 151936};

TEST(Rates, CountMatrixWeightsOfKnownModels) {
  EXPECT_EQ(layer_matrix_weights(kQwen25_7B), 6'525'288'448);
  EXPECT_EQ(matrix_weights(kQwen25_7B), 7'070'285'824);
  EXPECT_EQ(matrix_weights(kLlama31_8B), 7'504'658'432);
  EXPECT_EQ(matrix_weights(kQwen3_8B), 7'568'097'280);
}

TEST(Rates, CountAttentionOfKnownModels) {
  EXPECT_EQ(attention_flops_per_length(kQwen25_7B), 602'112);
  EXPECT_EQ(attention_flops_per_length(kLlama31_8B), 786'432);
  EXPECT_EQ(attention_flops_per_length(kQwen3_8B), 884'736);
}

TEST(Rates, AttendedLengthWeighsDocumentsByTheirTokens) {
  EXPECT_EQ(attended_length(std::vector<std::int64_t>{4096}), 4096);
  EXPECT_EQ(attended_length(std::vector<std::int64_t>{1, 1, 1}), 1);
  EXPECT_EQ(attended_length(std::vector<std::int64_t>{1, 3}), 2.5);
  EXPECT_EQ(attended_length(std::vector<std::int64_t>{}), 0);
  EXPECT_EQ(attended_length(std::vector<std::int64_t>{0}), 0);
}

TEST(Rates, FlopsPerTokenFollowTheConvention) {
  // Full: 6 · 7,504,658,432 + 786,432 · 8192.
  EXPECT_EQ(flops_per_token(kLlama31_8B, {.base_is_trained = true}, 8192),
            45'027'950'592.0 + 6'442'450'944.0);
  // Frozen base, 40 million adapter weights: 4 · 7,070,285,824 + 6 · 40e6 + 602,112 · 32768.
  EXPECT_EQ(flops_per_token(kQwen25_7B, {.lora_weights = 40'000'000}, 32768),
            28'281'143'296.0 + 240'000'000.0 + 19'730'006'016.0);
  // LM head of a quarter of the rows: 4 · (6,525,288,448 + 544,997,376 / 4).
  EXPECT_EQ(flops_per_token(kQwen25_7B, {.lm_head_share = 0.25}, 0), 26'646'151'168.0);
}

TEST(Rates, UtilisationIsUsefulFlopsOverThePeak) {
  // 4,150 tokens/s at 128K: 4,150 · (4 · 7,070,285,824 + 602,112 · 131,072) / 989e12 = 0.4498.
  const double flops = flops_per_token(kQwen25_7B, {}, 131'072);
  EXPECT_NEAR(model_flops_utilisation(4150, flops, kPeakFlopsH200), 0.449833, 1e-6);
  EXPECT_EQ(model_flops_utilisation(10, 5, 100), 0.5);
  EXPECT_EQ(model_flops_utilisation(10, 5, 0), 0);
}

TEST(Rates, SpreadIsTheMiddleAndTheEnds) {
  const Spread odd = spread_of({5, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 5);
  EXPECT_EQ(spread_of({4, 1, 2, 9}).median, 3);
  EXPECT_EQ(spread_of({}).most, 0);
}

TEST(Rates, NoTimeGivesNoRate) {
  EXPECT_EQ(per_second(10, 4), 2.5);
  EXPECT_EQ(per_second(10, 0), 0);
}

TEST(Rates, GibiBytesAreBinary) { EXPECT_EQ(gib(3ULL << 29), 1.5); }

}  // namespace
}  // namespace longhaul::metrics
