// Head and token splits, checked against their definition: every query head exactly once, balanced,
// the KV head of the model's numbering.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "config/shapes.h"

namespace longhaul::config {
namespace {

struct Layout {
  std::int64_t heads;
  std::int64_t kv_heads;
};

class SplitHeads : public testing::TestWithParam<Layout> {};

/// Calls `check` for every possible number of ranks.
template <typename Check>
void for_every_degree(const Layout& layout, const Check& check) {
  for (std::int64_t ranks = 1; ranks <= layout.heads; ++ranks) {
    SCOPED_TRACE(testing::Message() << layout.heads << "/" << layout.kv_heads << " on " << ranks);
    check(split_heads(layout.heads, layout.kv_heads, ranks), ranks);
  }
}

TEST_P(SplitHeads, CoversEveryQueryHeadOnceInOrder) {
  for_every_degree(GetParam(), [](const std::vector<RankHeads>& split, std::int64_t ranks) {
    ASSERT_EQ(static_cast<std::int64_t>(split.size()), ranks);
    std::int64_t next = 0;
    for (const RankHeads& rank : split) {
      EXPECT_EQ(rank.query_heads.begin, next);
      for (const HeadGroup& group : rank.groups) {
        EXPECT_EQ(group.query_heads.begin, next);
        EXPECT_GE(group.query_heads.size(), 1);
        next = group.query_heads.end;
      }
      EXPECT_EQ(rank.query_heads.end, next);
    }
    EXPECT_EQ(next, GetParam().heads);
  });
}

TEST_P(SplitHeads, BalancesQueryHeadsToOneAndLeavesNoRankWithoutWork) {
  for_every_degree(GetParam(), [](const std::vector<RankHeads>& split, std::int64_t ranks) {
    const std::int64_t least = GetParam().heads / ranks;
    for (const RankHeads& rank : split) {
      EXPECT_GE(rank.num_query_heads(), least);
      EXPECT_LE(rank.num_query_heads(), least + (GetParam().heads % ranks != 0 ? 1 : 0));
      EXPECT_GE(rank.num_kv_heads(), 1);
    }
  });
}

TEST_P(SplitHeads, KeepsTheModelsKvHeadOfEveryQueryHead) {
  const std::int64_t ratio = GetParam().heads / GetParam().kv_heads;
  for_every_degree(GetParam(), [&](const std::vector<RankHeads>& split, std::int64_t) {
    for (const RankHeads& rank : split) {
      std::set<std::int64_t> seen;
      for (const HeadGroup& group : rank.groups) {
        EXPECT_TRUE(seen.insert(group.kv_head).second) << "a KV head twice on one rank";
        for (std::int64_t q = group.query_heads.begin; q < group.query_heads.end; ++q) {
          EXPECT_EQ(group.kv_head, q / ratio);
        }
      }
      EXPECT_EQ(rank.kv_heads().begin, *seen.begin());
      EXPECT_EQ(rank.kv_heads().size(), static_cast<std::int64_t>(seen.size()));
    }
  });
}

TEST_P(SplitHeads, CopiesKvHeadsOnlyWhereTheyMustBe) {
  for_every_degree(GetParam(), [](const std::vector<RankHeads>& split, std::int64_t ranks) {
    const std::int64_t kv_heads = GetParam().kv_heads;
    std::map<std::int64_t, std::int64_t> copies;
    for (const RankHeads& rank : split) {
      for (const HeadGroup& group : rank.groups) {
        ++copies[group.kv_head];
      }
    }
    ASSERT_EQ(static_cast<std::int64_t>(copies.size()), kv_heads);
    for (const auto& [kv_head, count] : copies) {
      if (kv_heads % ranks == 0) {
        EXPECT_EQ(count, 1) << "KV head " << kv_head;
      } else if (ranks % kv_heads == 0) {
        EXPECT_EQ(count, ranks / kv_heads) << "KV head " << kv_head;
      }
    }
    if (ranks % kv_heads == 0) {
      for (const RankHeads& rank : split) {
        EXPECT_EQ(rank.num_kv_heads(), 1) << "a rank needs one KV head only";
      }
    }
  });
}

TEST_P(SplitHeads, CutsRunsOfEqualRatioThatCoverTheRank) {
  for_every_degree(GetParam(), [](const std::vector<RankHeads>& split, std::int64_t) {
    for (const RankHeads& rank : split) {
      std::int64_t query = 0;
      std::int64_t kv_head = 0;
      std::int64_t previous_ratio = -1;
      for (const HeadRun& run : equal_ratio_runs(rank)) {
        EXPECT_EQ(run.local_query_heads.begin, query);
        EXPECT_EQ(run.local_kv_heads.begin, kv_head);
        ASSERT_EQ(run.local_query_heads.size() % run.local_kv_heads.size(), 0);
        const std::int64_t ratio = run.local_query_heads.size() / run.local_kv_heads.size();
        EXPECT_NE(ratio, previous_ratio) << "runs are maximal";
        for (std::int64_t kv = run.local_kv_heads.begin; kv < run.local_kv_heads.end; ++kv) {
          EXPECT_EQ(rank.groups[static_cast<std::size_t>(kv)].query_heads.size(), ratio);
        }
        previous_ratio = ratio;
        query = run.local_query_heads.end;
        kv_head = run.local_kv_heads.end;
      }
      EXPECT_EQ(query, rank.num_query_heads());
      EXPECT_EQ(kv_head, rank.num_kv_heads());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, SplitHeads,
                         testing::Values(Layout{4, 4}, Layout{8, 2}, Layout{6, 2}, Layout{9, 3},
                                         Layout{28, 4}, Layout{32, 8}, Layout{40, 8}, Layout{7, 7},
                                         Layout{20, 4}, Layout{1, 1}, Layout{12, 1}),
                         [](const testing::TestParamInfo<Layout>& param) {
                           return std::to_string(param.param.heads) + "on" +
                                  std::to_string(param.param.kv_heads);
                         });

TEST(SplitHeadsExamples, NineHeadsOnTwoRanksShareTheMiddleKvHead) {
  const std::vector<RankHeads> split = split_heads(9, 3, 2);
  EXPECT_EQ(split[0].query_heads, (Range{0, 5}));
  EXPECT_EQ(split[0].groups, (std::vector<HeadGroup>{{0, {0, 3}}, {1, {3, 5}}}));
  EXPECT_EQ(split[1].groups, (std::vector<HeadGroup>{{1, {5, 6}}, {2, {6, 9}}}));
}

TEST(SplitHeadsExamples, SevenHeadsPerGroupOnEightRanksStayInsideTheirGroup) {
  const std::vector<RankHeads> split = split_heads(28, 4, 8);
  EXPECT_EQ(split[0].groups, (std::vector<HeadGroup>{{0, {0, 4}}}));
  EXPECT_EQ(split[1].groups, (std::vector<HeadGroup>{{0, {4, 7}}}));
  EXPECT_EQ(split[7].groups, (std::vector<HeadGroup>{{3, {25, 28}}}));
}

TEST(SplitHeadsExamples, TheHeadCountIsAnArgumentAndNotRemembered) {
  EXPECT_EQ(split_heads(8, 2, 4)[3].query_heads, (Range{6, 8}));
  EXPECT_EQ(split_heads(20, 4, 8)[7].query_heads.size(), 2);
  EXPECT_EQ(split_heads(8, 2, 4)[3].query_heads, (Range{6, 8}));
}

TEST(SplitTokens, AreConsecutiveBalancedAndNeverPadded) {
  for (std::int64_t ranks = 1; ranks <= 9; ++ranks) {
    for (std::int64_t tokens = 0; tokens <= 41; ++tokens) {
      const std::vector<Range> shards = split_tokens(tokens, ranks);
      ASSERT_EQ(static_cast<std::int64_t>(shards.size()), ranks);
      std::int64_t next = 0;
      for (const Range& shard : shards) {
        EXPECT_EQ(shard.begin, next);
        next = shard.end;
      }
      EXPECT_EQ(next, tokens);
      EXPECT_LE(shards.front().size() - shards.back().size(), 1);
      EXPECT_TRUE(std::is_sorted(shards.begin(), shards.end(), [](const Range& a, const Range& b) {
        return a.size() > b.size();
      }));
    }
  }
}

TEST(SplitTokens, ARowShorterThanTheRanksLeavesEmptyShards) {
  const std::vector<Range> shards = split_tokens(2, 4);
  EXPECT_EQ(shards[1], (Range{1, 2}));
  EXPECT_EQ(shards[2], (Range{2, 2}));
  EXPECT_EQ(shards[3].size(), 0);
}

}  // namespace
}  // namespace longhaul::config
