// Ranks that mean different runs are told so, every rank in the same words.
#include "train/rank_agreement.h"

#include <gtest/gtest.h>

#include <mutex>

#include "base/error.h"
#include "config/options.h"
#include "dist/comm_threads.h"

namespace longhaul::train {
namespace {

using Words = std::vector<std::string>;

/// What each of three ranks is told when rank 2 has further words; empty when they agree.
Words told(const Words& of_all, const Words& of_rank_2) {
  Words messages(3);
  dist::run_ranks(3, [&](dist::Communicator& world) {
    Words words = of_all;
    if (world.rank() == 2) {
      words.insert(words.end(), of_rank_2.begin(), of_rank_2.end());
    }
    const config::Config config = config::parse_options(config::Command::kSft, words).config;
    try {
      check_options_agree(config, world);
    } catch (const base::UserError& error) {
      messages[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  return messages;
}

const Words kRun = {"--model", "m", "--dataset", "d.jsonl", "--learning_rate", "1e-4"};

TEST(RankAgreement, EqualOptionsAgree) { EXPECT_EQ(told(kRun, {}), Words(3)); }

TEST(RankAgreement, NamesTheOptionAndBothRanks) {
  const Words messages = told(kRun, {"--learning_rate", "2e-4"});
  EXPECT_EQ(messages, Words(3, messages[0]));
  for (const char* part : {"--learning_rate: differs between the ranks", "0.0001 on rank 0",
                           "0.0002 on rank 2", "same options"}) {
    EXPECT_NE(messages[0].find(part), std::string::npos) << messages[0];
  }
}

TEST(RankAgreement, WhatOneRankAloneWasGivenCounts) {
  EXPECT_NE(told(kRun, {"--adapters", "a"})[0].find("--adapters: differs"), std::string::npos);
  EXPECT_NE(told(kRun, {"--ulysses_seq_len", "512"})[1].find("null on rank 0, 512 on rank 2"),
            std::string::npos);
  EXPECT_NE(told(kRun, {"--target_modules", "q_proj"})[0].find("--target_modules"),
            std::string::npos);
}

TEST(RankAgreement, NamesWhatWasWrittenAndNotWhatFollowsFromIt) {
  const auto message = told(kRun, {"--weight_decay", "0.2", "--adam_beta1", "0.8"})[0];
  EXPECT_NE(message.find("--adam_beta1"), std::string::npos) << message;  // by name
  EXPECT_EQ(told(kRun, {"--learning_rate", "0.0001"}), Words(3));  // the same, written otherwise
}

TEST(RankAgreement, HostsMayHaveTheirOwnPathsCachesAndLimits) {
  EXPECT_EQ(told(kRun, {"--model", "elsewhere/m", "--dataset", "e.jsonl", "--cache_dir", "c",
                        "--gpu_memory_limit", "40GB", "--host_memory_limit", "10GB",
                        "--dataset_num_proc", "3"}),
            Words(3));
}

TEST(RankAgreement, ComparesWhatWasReadFromFiles) {
  Words messages(2);
  dist::run_ranks(2, [&](dist::Communicator& world) {
    const base::OrderedJson contents = {{"data", world.rank() == 0 ? "12ab" : "34cd"},
                                        {"seed", 42}};
    try {
      check_contents_agree(contents, world);
    } catch (const base::UserError& error) {
      messages[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_NE(messages[0].find("data: differs between the ranks"), std::string::npos);
  EXPECT_NE(messages[0].find("12ab on rank 0, 34cd on rank 1"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::train
