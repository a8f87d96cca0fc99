// Decoding with a cache against the whole row at once through the training decoder.
#include "infer/cached_decoder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/shard.h"
#include "dist/ulysses.h"
#include "model/decoder_model.h"
#include "model/tiny_models.h"
#include "ops/matmul.h"
#include "ops/rows.h"

namespace longhaul {
namespace {

using testing::Tuning;

/// A tiny model with random weights; the adapter's B is not zero.
struct Fixture {
  explicit Fixture(const std::string& name, at::ScalarType type = at::kFloat,
                   Tuning tuning = Tuning::kLora)
      : model(testing::tiny_model(name)),
        spec(testing::tiny_tuning(model, tuning)),
        parameters(config::build_registry(model, spec), type) {
    testing::randomise(parameters, 11);
    store = std::make_unique<model::ResidentWeightStore>(model, parameters,
                                                         spec.lora ? spec.lora->scale() : 1.0);
  }

  config::ModelConfig model;
  config::TuningSpec spec;
  model::Parameters parameters;
  std::unique_ptr<model::ResidentWeightStore> store;
};

/// Logits [S, V] of every token of one document, without any cache.
at::Tensor full_logits(Fixture& fixture, const std::vector<std::int32_t>& ids) {
  const auto comm = dist::make_single();
  dist::UlyssesExchange exchange(
      *comm, config::split_heads(fixture.model.num_heads, fixture.model.num_kv_heads, 1),
      fixture.model.head_dim);
  model::UlyssesAttention attention(fixture.model, exchange);
  model::DecoderModel decoder(
      fixture.model, *fixture.store, attention,
      std::vector<config::LayerPolicy>(static_cast<std::size_t>(fixture.model.num_layers)));
  testing::Document document;
  document.ids = ids;
  document.labels.assign(ids.size(), -100);
  const dist::LocalBatch batch = dist::shard_row(testing::make_row({document}, 0), 1, 0);
  const at::Tensor hidden = decoder.hidden_states(batch);
  const at::Tensor normed = at::empty_like(hidden);
  const model::EndWeights& ends = fixture.store->ends();
  ops::rms_norm(hidden, ends.final_norm.weight, fixture.model.rms_norm_eps, normed);
  at::Tensor logits = at::empty({hidden.size(0), ends.head.size(0)}, hidden.options());
  ops::linear(normed, ends.head, at::Tensor(), logits);
  return logits.to(at::kFloat);
}

/// Largest difference relative to the largest logit.
double difference(const at::Tensor& got, const at::Tensor& want) {
  return (got - want).abs().max().item<double>() / want.abs().max().item<double>();
}

std::vector<std::int32_t> random_ids(std::int64_t count) {
  return testing::make_document(count, 0, 50, 5).ids;
}

class CachedDecoder : public ::testing::TestWithParam<std::string> {};

TEST_P(CachedDecoder, GivesTheLogitsOfTheWholeRowForEverySplitIntoSteps) {
  Fixture fixture(GetParam());
  const std::vector<std::int32_t> ids = random_ids(37);
  const at::Tensor want = full_logits(fixture, ids);
  const std::vector<std::vector<std::size_t>> splits = {
      {37}, {1, 1, 1, 34}, {17, 1, 1, 1, 1, 5, 1, 10}, std::vector<std::size_t>(37, 1)};
  for (const std::vector<std::size_t>& split : splits) {
    infer::CachedDecoder decoder(fixture.model, *fixture.store);
    std::size_t done = 0;
    for (const std::size_t count : split) {
      const at::Tensor logits = decoder.append(std::span(ids).subspan(done, count));
      done += count;
      EXPECT_LE(difference(logits, want[static_cast<std::int64_t>(done) - 1]), 2e-6)
          << "after " << done << " tokens, steps of " << split.front() << ", …";
    }
  }
}

TEST_P(CachedDecoder, GoesOnFromTheCommonBeginningAfterReplacing) {
  Fixture fixture(GetParam());
  const std::vector<std::int32_t> first = random_ids(23);
  std::vector<std::int32_t> second(first.begin(), first.begin() + 9);
  const std::vector<std::int32_t> other = testing::make_document(12, 0, 50, 99).ids;
  second.insert(second.end(), other.begin(), other.end());
  infer::CachedDecoder decoder(fixture.model, *fixture.store);
  decoder.append(first);
  const at::Tensor logits = decoder.replace(second);
  EXPECT_EQ(decoder.tokens(), second);
  EXPECT_LE(difference(logits, full_logits(fixture, second)[20]), 2e-6);
  // The same prompt again: nothing new but its last token.
  EXPECT_LE(difference(decoder.replace(second), full_logits(fixture, second)[20]), 2e-6);
}

TEST_P(CachedDecoder, StaysNearTheWholeRowInBfloat16) {
  Fixture exact(GetParam());
  Fixture rounded(GetParam(), at::kBFloat16);
  const std::vector<std::int32_t> ids = random_ids(30);
  const at::Tensor want = full_logits(exact, ids)[29];
  infer::CachedDecoder decoder(rounded.model, *rounded.store);
  decoder.append(std::span(ids).first(25));
  at::Tensor logits;
  for (std::size_t i = 25; i < 30; ++i) {
    logits = decoder.append(std::span(ids).subspan(i, 1));
  }
  const double plain = difference(full_logits(rounded, ids)[29], want);
  EXPECT_LE(difference(logits, want), std::max(2 * plain, 5e-3));
}

INSTANTIATE_TEST_SUITE_P(Models, CachedDecoder,
                         ::testing::Values("llama", "qwen2", "qwen2_tied", "qwen3", "smol"),
                         [](const auto& test) { return test.param; });

TEST(CachedDecoderLength, CutsLongPromptsWithoutChangingTheResult) {
  Fixture fixture("smol");
  fixture.model.max_position_embeddings = 4096;
  const std::vector<std::int32_t> ids = random_ids(2 * infer::kPrefillTokens + 13);
  infer::CachedDecoder decoder(fixture.model, *fixture.store);
  const at::Tensor logits = decoder.append(ids);
  const at::Tensor want = full_logits(fixture, ids);
  EXPECT_LE(difference(logits, want[want.size(0) - 1]), 2e-6);
}

TEST(CachedDecoderLength, UsesTheAdapterUnmerged) {
  Fixture with("llama");
  Fixture without("llama", at::kFloat, Tuning::kFull);
  const std::vector<std::int32_t> ids = random_ids(8);
  infer::CachedDecoder tuned(with.model, *with.store);
  infer::CachedDecoder base(without.model, *without.store);
  EXPECT_GE(difference(tuned.append(ids), base.append(ids)), 1e-3);
}

}  // namespace
}  // namespace longhaul
