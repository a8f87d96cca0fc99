#include "train/bench_kernels.h"

#include <gtest/gtest.h>

#include "config/named_models.h"
#include "config/options.h"
#include "config/validate.h"
#include "dist/comm_threads.h"

namespace longhaul::train {
namespace {

config::Config config_of(std::vector<std::string> words, int ranks = 1) {
  words.insert(words.end(), {"--device", "cpu", "--shape", "tiny", "--bench_steps", "3"});
  return config::load_config(config::parse_options(config::Command::kBench, words),
                             {.ranks = ranks, .local_ranks = ranks});
}

TEST(BenchKernels, AttentionCountsTheCausalHalfOfOneRanksHeads) {
  const config::ModelConfig model = *config::find_named_model("tiny");  // 8/2 heads of 64
  const config::Config config = config_of({"attention", "--sequence_parallel_size", "3"});
  const AttentionMeasurement one = measure_attention(config, model, at::kCPU, 40, std::nullopt);
  EXPECT_EQ(one.query_heads, 3);
  EXPECT_EQ(one.kv_heads, 1);
  EXPECT_EQ(one.forward_s.size(), 3U);
  EXPECT_EQ(one.backward_s.size(), 3U);
  // Two products of 2 · 64 FLOPs for each of 40 · 40 / 2 pairs of tokens and 3 heads.
  EXPECT_DOUBLE_EQ(one.forward_flops, 2 * 2 * 64 * 40 * 40 / 2.0 * 3);
  EXPECT_DOUBLE_EQ(one.backward_flops, 2.5 * one.forward_flops);
  const AttentionMeasurement many = measure_attention(config, model, at::kCPU, 40, 5);
  EXPECT_GT(many.documents, 2);
  EXPECT_LT(many.forward_flops, one.forward_flops);
}

TEST(BenchKernels, ExchangesSendWhatOtherRanksNeed) {
  const config::ModelConfig model = *config::find_named_model("tiny");
  const config::Config config = config_of({"exchange"}, 2);
  dist::run_ranks(2, [&](dist::Communicator& world) {
    const dist::ProcessGroup group = dist::make_process_group(world.split(0), config.mesh);
    for (const bool through_peers : {false, true}) {
      const ExchangeMeasurement measured =
          measure_exchange(config, model, group, at::kCPU, 101, through_peers);
      EXPECT_EQ(measured.through_peers, through_peers);
      EXPECT_EQ(measured.tokens, 101);
      EXPECT_EQ(measured.qkv.seconds.size(), 3U);
      EXPECT_GT(measured.output.seconds.front(), 0);
      // 50.5 tokens per rank: 6 of 12 heads of q, k, v go to the other rank, 4 of 8 come back; bf16.
      EXPECT_DOUBLE_EQ(measured.qkv.bytes, 50.5 * 6 * 64 * 2);
      EXPECT_DOUBLE_EQ(measured.output.bytes, 50.5 * 4 * 64 * 2);
    }
  });
}

}  // namespace
}  // namespace longhaul::train
