#include "dist/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::dist {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Documents of 1, 4 and 2 tokens; labels are the next token of the document, −100 at its end.
data::PackedBatch three_documents() {
  data::PackedBatch row;
  row.ids = {10, 20, 21, 22, 23, 30, 31};
  row.labels = {-100, 21, 22, 23, -100, 31, -100};
  row.positions = {0, 0, 1, 2, 3, 0, 1};
  row.cu_seqlens = {0, 1, 5, 7};
  row.sample_ids = {4, 9, 2};
  return row;
}

TEST(Shard, CutsTokensAndKeepsWhatDescribesTheWholeRow) {
  const LocalBatch second = shard_row(three_documents(), 3, 1);
  EXPECT_EQ(second.my_tokens, (config::Range{3, 5}));
  EXPECT_THAT(second.ids, ElementsAre(22, 23));
  EXPECT_THAT(second.labels, ElementsAre(23, -100));
  EXPECT_THAT(second.positions, ElementsAre(2, 3));
  EXPECT_THAT(second.documents, ElementsAre(1, 1));
  EXPECT_THAT(second.cu_seqlens, ElementsAre(0, 1, 5, 7));
  EXPECT_THAT(second.sample_ids, ElementsAre(4, 9, 2));
  EXPECT_EQ(second.row_tokens(), 7);
}

TEST(Shard, GivesTheLastTokenOfAShardItsTarget) {
  // Token 2 (id 21) ends the first shard; its target 22 lies in the next one.
  const LocalBatch first = shard_row(three_documents(), 3, 0);
  EXPECT_THAT(first.ids, ElementsAre(10, 20, 21));
  EXPECT_EQ(first.labels.back(), 22);
  EXPECT_THAT(first.documents, ElementsAre(0, 1, 1));
}

TEST(Shard, PartsPutTogetherAreTheRow) {
  const data::PackedBatch row = three_documents();
  for (std::int64_t sp = 1; sp <= 9; ++sp) {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> documents;
    for (std::int64_t rank = 0; rank < sp; ++rank) {
      const LocalBatch part = shard_row(row, sp, rank);
      ids.insert(ids.end(), part.ids.begin(), part.ids.end());
      labels.insert(labels.end(), part.labels.begin(), part.labels.end());
      positions.insert(positions.end(), part.positions.begin(), part.positions.end());
      documents.insert(documents.end(), part.documents.begin(), part.documents.end());
    }
    EXPECT_EQ(ids, row.ids);
    EXPECT_EQ(labels, row.labels);
    EXPECT_EQ(positions, row.positions);
    EXPECT_THAT(documents, ElementsAre(0, 1, 1, 1, 1, 2, 2));
  }
}

TEST(Shard, OfARowShorterThanTheGroupMayBeEmpty) {
  const LocalBatch last = shard_row(three_documents(), 9, 8);
  EXPECT_THAT(last.ids, IsEmpty());
  EXPECT_THAT(last.documents, IsEmpty());
  EXPECT_EQ(last.row_tokens(), 7);
}

TEST(Shard, RefusesARowWhosePartsDisagree) {
  data::PackedBatch row = three_documents();
  row.labels.pop_back();
  EXPECT_THROW(shard_row(row, 2, 0), base::InternalError);
}

}  // namespace
}  // namespace longhaul::dist
