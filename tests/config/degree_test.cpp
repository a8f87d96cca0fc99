// The Ulysses rules: which degree the options ask for, and that every refusal names values that
// would be accepted.
#include "config/degree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "config/test_models.h"

namespace longhaul::config {
namespace {

using testing::HasSubstr;

struct Case {
  std::int64_t ranks = 1;
  std::optional<std::int64_t> max_length{};
  std::optional<std::int64_t> seq_len{};
  std::optional<std::int64_t> size{};
  std::optional<bool> ulysses{};
  std::optional<std::int64_t> packing_length{};
  std::int64_t heads = 12;
  std::int64_t nodes = 1;
};

struct Outcome {
  Config config{};
  std::string problems{};
};

Outcome decide(const Case& given) {
  Outcome outcome;
  Config& config = outcome.config;
  config.launch.ranks = given.ranks;
  config.launch.local_ranks = given.ranks / given.nodes;
  config.data.max_length = given.max_length;
  config.data.packing = given.packing_length.has_value();
  config.data.packing_length = given.packing_length;
  config.parallel.ulysses = given.ulysses;
  config.parallel.ulysses_seq_len = given.seq_len;
  config.parallel.sequence_parallel_size = given.size;
  ModelConfig model = testing_models::tied_qwen2();
  model.num_heads = given.heads;
  model.max_position_embeddings = 8192;
  std::vector<base::Problem> problems;
  decide_lengths(config, model, problems);
  decide_mesh(config, model, problems);
  for (const base::Problem& problem : problems) {
    outcome.problems += problem.line() + "\n";
  }
  return outcome;
}

TEST(Degree, OffMeansDataParallelOnly) {
  const Outcome outcome = decide({.ranks = 4});
  EXPECT_EQ(outcome.problems, "");
  EXPECT_EQ(outcome.config.mesh.sp, 1);
  EXPECT_EQ(outcome.config.mesh.dp, 4);
  EXPECT_EQ(outcome.config.row_length, 8192);
  EXPECT_EQ(decide({.ranks = 4, .size = 1, .ulysses = false}).problems, "");
}

TEST(Degree, UlyssesAloneTakesAllRanks) {
  const Outcome outcome = decide({.ranks = 4, .ulysses = true});
  EXPECT_EQ(outcome.problems, "");
  EXPECT_EQ(outcome.config.mesh.sp, 4);
  EXPECT_EQ(outcome.config.mesh.dp, 1);
}

TEST(Degree, RoundsTheRowLengthUpToWholeParts) {
  EXPECT_EQ(decide({.ranks = 4, .max_length = 3072, .seq_len = 1536}).config.mesh.sp, 2);
  EXPECT_EQ(decide({.ranks = 3, .max_length = 3073, .seq_len = 1025}).config.mesh.sp, 3);
  EXPECT_EQ(decide({.ranks = 4, .max_length = 3073, .seq_len = 1537}).config.mesh.sp, 2);
  EXPECT_EQ(decide({.ranks = 4, .max_length = 100, .seq_len = 4096}).config.mesh.sp, 1);
}

TEST(Degree, PackedRowsDecideWithTheirOwnLength) {
  const Outcome outcome = decide({.ranks = 2, .seq_len = 1536, .packing_length = 3072});
  EXPECT_EQ(outcome.problems, "");
  EXPECT_EQ(outcome.config.mesh.sp, 2);
  EXPECT_EQ(outcome.config.row_length, 3072);
  EXPECT_EQ(outcome.config.max_length, 3072);
  // A shorter pack bounds the default, and contradicts a given max_length.
  EXPECT_EQ(decide({.packing_length = 512}).config.max_length, 512);
  EXPECT_THAT(decide({.max_length = 600, .packing_length = 512}).problems,
              HasSubstr("--packing_length: shorter than max_length"));
  EXPECT_EQ(decide({.max_length = 400, .packing_length = 512}).problems, "");
}

TEST(Degree, MaxLengthDefaultsToWhatTheRanksHold) {
  EXPECT_EQ(decide({.ranks = 4, .seq_len = 1000}).config.max_length, 4000);
  EXPECT_EQ(decide({.ranks = 4, .seq_len = 1000, .size = 2}).config.max_length, 2000);
  EXPECT_EQ(decide({.ranks = 4, .seq_len = 1000, .size = 2}).config.mesh.sp, 2);
  EXPECT_THAT(decide({.ranks = 8, .seq_len = 2147483647}).problems, HasSubstr("too long"));
}

TEST(Degree, OptionsThatDisagreeAreRefusedWithBothWaysOut) {
  const std::string text =
      decide({.ranks = 4, .max_length = 4096, .seq_len = 1024, .size = 2}).problems;
  EXPECT_EQ(text,
            "--sequence_parallel_size: --ulysses_seq_len 1024 cuts rows of 4096 tokens into 4 "
            "parts (got 2, "
            "expected 4). Use --ulysses_seq_len 1024 or --sequence_parallel_size 4 with "
            "NPROC_PER_NODE=4, or "
            "--ulysses_seq_len 2048 or --sequence_parallel_size 2 with NPROC_PER_NODE=4\n");
  EXPECT_THAT(decide({.ulysses = false, .packing_length = 9}).problems, "");
  EXPECT_THAT(decide({.seq_len = 5, .ulysses = false}).problems,
              HasSubstr("--ulysses: --ulysses_seq_len asks for it (got false)"));
  EXPECT_THAT(decide({.ranks = 2, .size = 2, .ulysses = false}).problems,
              HasSubstr("--sequence_parallel_size asks for it"));
}

TEST(Degree, RanksMustBeAMultipleAndTheMessageSaysWhatFits) {
  EXPECT_EQ(decide({.ranks = 2, .max_length = 3072, .seq_len = 1000}).problems,
            "--ulysses_seq_len: rows of 3072 tokens ask for sp 4, and 2 ranks are no multiple of "
            "it (got 1000). "
            "Use --ulysses_seq_len 1536 or --sequence_parallel_size 2 with these ranks, or "
            "NPROC_PER_NODE=4 for "
            "sp 4\n");
  EXPECT_THAT(
      decide({.ranks = 6, .max_length = 4096, .size = 4}).problems,
      HasSubstr("--sequence_parallel_size 6 with these ranks, or NPROC_PER_NODE=8 for sp 4"));
  EXPECT_THAT(decide({.ranks = 1, .max_length = 4096, .size = 2}).problems,
              HasSubstr("1 rank is no multiple of it"));
  // Two nodes with three ranks each: four per node make a multiple of 8.
  EXPECT_THAT(decide({.ranks = 6, .max_length = 4096, .size = 8, .nodes = 2}).problems,
              HasSubstr("NPROC_PER_NODE=4 for sp 8"));
}

TEST(Degree, MoreRanksThanHeadsNameHeadsRanksAndTheLargestDegree) {
  EXPECT_EQ(decide({.ranks = 16, .max_length = 4096, .ulysses = true, .heads = 9}).problems,
            "--ulysses: sp 16 on 16 ranks is more than the model's 9 query heads (got true, "
            "expected sp of at most "
            "9). The largest sp that fits 16 ranks is 8: --ulysses_seq_len 512 or "
            "--sequence_parallel_size 8\n");
  EXPECT_EQ(decide({.ranks = 9, .max_length = 4096, .ulysses = true, .heads = 9}).problems, "");
  EXPECT_THAT(decide({.ranks = 2, .max_length = 4096, .seq_len = 100, .heads = 9}).problems,
              HasSubstr("sp 41 on 2 ranks is more than the model's 9 query heads"));
}

/// What a message offers must itself be accepted, whatever the numbers.
TEST(Degree, EveryOfferIsAccepted) {
  const std::regex offer(
      "--ulysses_seq_len (\\d+) or --sequence_parallel_size (\\d+) with these ranks, or "
      "NPROC_PER_NODE=(\\d+) for sp (\\d+)");
  int offers = 0;
  for (std::int64_t ranks = 1; ranks <= 12; ++ranks) {
    for (const std::int64_t length : {1, 2, 3, 5, 7, 12, 13, 100, 3072}) {
      for (std::int64_t seq_len = 1; seq_len <= length; seq_len += 1 + seq_len / 3) {
        const std::string text =
            decide({.ranks = ranks, .max_length = length, .seq_len = seq_len}).problems;
        std::smatch found;
        if (!std::regex_search(text, found, offer)) {
          continue;
        }
        ++offers;
        SCOPED_TRACE(text);
        const auto number = [&](int i) { return std::stoll(found[static_cast<std::size_t>(i)]); };
        const Outcome by_length =
            decide({.ranks = ranks, .max_length = length, .seq_len = number(1), .size = number(2)});
        EXPECT_EQ(by_length.problems, "");
        EXPECT_EQ(by_length.config.mesh.sp, number(2));
        const Outcome by_ranks =
            decide({.ranks = number(3), .max_length = length, .seq_len = seq_len});
        EXPECT_EQ(by_ranks.problems, "");
        EXPECT_EQ(by_ranks.config.mesh.sp, number(4));
      }
    }
  }
  EXPECT_GT(offers, 100);
}

}  // namespace
}  // namespace longhaul::config
