// Masks and noise are addressed by (seed, epoch, sample, position in the sample, layer, input) and
// by nothing else.
#include "model/row_context.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "model/tiny_models.h"

namespace longhaul {
namespace {

using model::LayerInput;
using model::RandomAddress;
using model::RowContext;

/// A row of documents of these lengths that belong to these samples.
data::PackedBatch row_of(const std::vector<std::int64_t>& lengths,
                         const std::vector<std::int64_t>& samples) {
  std::vector<testing::Document> documents;
  for (const std::int64_t length : lengths) {
    documents.push_back(testing::make_document(length, 1, 50, static_cast<std::uint64_t>(length)));
  }
  data::PackedBatch row = testing::make_row(documents, 0);
  row.sample_ids = samples;
  return row;
}

const config::ModelConfig& tiny() {
  static const config::ModelConfig model = testing::tiny_model("llama");
  return model;
}

constexpr RandomAddress kRandom{.seed = 3, .epoch = 1, .lora_dropout = 0.25, .neftune_alpha = 5};

/// What decides the mask of one row: everything but the column.
struct Address {
  std::uint64_t seed_key;
  std::uint64_t row_key;
  bool operator<(const Address& other) const {
    return std::tie(seed_key, row_key) < std::tie(other.seed_key, other.row_key);
  }
  bool operator==(const Address& other) const = default;
};

Address address(const RowContext& context, std::size_t token, std::int64_t layer = 0,
                LayerInput input = LayerInput::kAttention) {
  const model::LoraDropout keys = context.row_dropout(layer, input);
  return {keys->seed_key, keys->row_keys[token]};
}

TEST(RowContext, ATokensMaskDependsOnItsSampleAndPositionOnly) {
  const dist::LocalBatch packed = dist::shard_row(row_of({5, 3, 4}, {10, 2, 7}), 1, 0);
  const dist::LocalBatch alone = dist::shard_row(row_of({3}, {2}), 1, 0);
  const RowContext in_row(packed, tiny(), kRandom);
  const RowContext by_itself(alone, tiny(), kRandom);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(address(in_row, 5 + i), address(by_itself, i));
  }
}

TEST(RowContext, EverythingElseInTheAddressChangesIt) {
  const dist::LocalBatch batch = dist::shard_row(row_of({2, 2}, {0, 1}), 1, 0);
  std::set<Address> seen;
  std::size_t count = 0;
  for (const std::uint64_t seed : {3, 4}) {
    for (const std::int64_t epoch : {0, 1, 2}) {
      RandomAddress random = kRandom;
      random.seed = seed;
      random.epoch = epoch;
      const RowContext context(batch, tiny(), random);
      for (std::int64_t layer = 0; layer < 3; ++layer) {
        for (const LayerInput input : {LayerInput::kAttention, LayerInput::kAttentionOut,
                                       LayerInput::kMlp, LayerInput::kMlpDown}) {
          for (std::size_t token = 0; token < 4; ++token) {
            seen.insert(address(context, token, layer, input));
            ++count;
          }
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(RowContext, ShardsSeeTheirOwnPartOfTheRowsKeys) {
  const data::PackedBatch row = row_of({7, 4}, {5, 6});
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    const dist::LocalBatch batch = dist::shard_row(row, 3, rank);
    const RowContext context(batch, tiny(), kRandom);
    EXPECT_EQ(context.row_tokens(), 11);
    EXPECT_EQ(context.local_tokens(), rank < 2 ? 4 : 3);
    const auto whole = context.row_dropout(1, LayerInput::kMlp);
    const auto mine = context.local_dropout(1, LayerInput::kMlp);
    ASSERT_EQ(mine->row_keys.size(), static_cast<std::size_t>(context.local_tokens()));
    EXPECT_EQ(whole->row_keys.size(), 11U);
    EXPECT_EQ(mine->seed_key, whole->seed_key);
    for (std::size_t i = 0; i < mine->row_keys.size(); ++i) {
      EXPECT_EQ(mine->row_keys[i],
                whole->row_keys[static_cast<std::size_t>(batch.my_tokens.begin) + i]);
    }
    EXPECT_FLOAT_EQ(mine->probability, 0.25F);
  }
}

TEST(RowContext, EvaluationDrawsNothing) {
  const dist::LocalBatch batch = dist::shard_row(row_of({4}, {0}), 1, 0);
  const RowContext context(batch, tiny(), RandomAddress{});
  EXPECT_FALSE(context.row_dropout(0, LayerInput::kMlp).has_value());
  EXPECT_FALSE(context.local_dropout(0, LayerInput::kMlp).has_value());
  const at::Tensor embeddings = at::ones({4, 6});
  context.add_neftune(embeddings);
  EXPECT_TRUE(embeddings.eq(1).all().item<bool>());
}

TEST(RowContext, RotaryAnglesCoverTheRowAndRestartWithEveryDocument) {
  const dist::LocalBatch batch = dist::shard_row(row_of({3, 1, 4}, {0, 1, 2}), 2, 1);
  const RowContext context(batch, tiny(), RandomAddress{});
  ASSERT_EQ(context.rope().cosine.sizes(), (std::vector<std::int64_t>{8, 3}));
  const std::vector<int> positions = {0, 1, 2, 0, 0, 1, 2, 3};
  for (std::int64_t row = 0; row < 8; ++row) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const double angle = positions[static_cast<std::size_t>(row)] *
                           std::pow(10000.0, -2.0 * static_cast<double>(i) / 6.0);
      EXPECT_NEAR(context.rope().cosine[row][i].item<double>(), std::cos(angle), 1e-6);
      EXPECT_NEAR(context.rope().sine[row][i].item<double>(), std::sin(angle), 1e-6);
    }
  }
}

TEST(RowContext, RotaryAnglesOfTheShardAreThoseOfItsTokens) {
  const data::PackedBatch row = row_of({3, 1, 4}, {0, 1, 2});
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    const dist::LocalBatch batch = dist::shard_row(row, 3, rank);
    const RowContext context(batch, tiny(), RandomAddress{});
    const std::int64_t begin = batch.my_tokens.begin;
    const std::int64_t count = batch.my_tokens.size();
    EXPECT_TRUE(context.local_rope().cosine.equal(context.rope().cosine.narrow(0, begin, count)));
    EXPECT_TRUE(context.local_rope().sine.equal(context.rope().sine.narrow(0, begin, count)));
    for (std::int64_t i = 0; i < count; ++i) {
      EXPECT_NEAR(context.local_rope().cosine[i][0].item<double>(),
                  std::cos(batch.positions[static_cast<std::size_t>(i)]), 1e-6);
    }
  }
}

TEST(RowContext, NoiseHasNeftunesSizePerDocumentAndDoesNotDependOnTheCut) {
  const data::PackedBatch row = row_of({9, 100}, {3, 4});
  const std::int64_t hidden = 16;
  const auto noise = [&](std::int64_t sp) {
    std::vector<at::Tensor> shards;
    for (std::int64_t rank = 0; rank < sp; ++rank) {
      const dist::LocalBatch batch = dist::shard_row(row, sp, rank);
      const RowContext context(batch, tiny(), kRandom);
      shards.push_back(at::zeros({context.local_tokens(), hidden}));
      context.add_neftune(shards.back());
    }
    return at::cat(shards, 0);
  };
  const at::Tensor whole = noise(1);
  EXPECT_TRUE(noise(4).equal(whole));
  for (const auto& [begin, length] : {std::pair{0, 9}, {9, 100}}) {
    const double bound = 5 / std::sqrt(static_cast<double>(length * hidden));
    const double largest = whole.narrow(0, begin, length).abs().max().item<double>();
    EXPECT_LE(largest, bound * (1 + 1e-6));
    EXPECT_GT(largest, 0.9 * bound);
  }
}

TEST(RowContext, AShardWithoutTokensIsFine) {
  const dist::LocalBatch batch = dist::shard_row(row_of({2}, {0}), 4, 3);
  const RowContext context(batch, tiny(), kRandom);
  EXPECT_EQ(context.local_tokens(), 0);
  EXPECT_EQ(context.local_rope().cosine.size(0), 0);
  EXPECT_TRUE(context.local_dropout(0, LayerInput::kAttention)->row_keys.empty());
  context.add_neftune(at::empty({0, 8}));
}

}  // namespace
}  // namespace longhaul
