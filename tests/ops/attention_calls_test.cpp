// Which calls cover the documents of a row, whatever kernels are asked for.
#include "ops/attention_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace longhaul::ops {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kStep = 1024;

std::vector<std::int32_t> borders(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> result = {0};
  for (const std::int32_t length : lengths) {
    result.push_back(result.back() + length);
  }
  return result;
}

std::vector<AttentionKernel> kernels_of(const std::vector<AttentionCall>& calls) {
  std::vector<AttentionKernel> kernels;
  for (const AttentionCall& call : calls) {
    kernels.push_back(call.kernel);
  }
  return kernels;
}

std::vector<AttentionCall> calls_for(const std::vector<std::int32_t>& lengths,
                                     AttentionKernels kernels = AttentionKernels::kFastest,
                                     const AttentionLimits& limits = {}) {
  return attention_calls(borders(lengths), kernels, limits);
}

/// Log-normal lengths, some of them empty.
std::vector<std::int32_t> random_lengths(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> length(6.0 + seed % 4, 1.0);
  std::vector<std::int32_t> lengths;
  const std::size_t count = 1 + seed % 60;
  while (lengths.size() < count) {
    lengths.push_back(static_cast<std::int32_t>(length(random)));
    if (seed % 5 == 0) {
      lengths.push_back(0);
    }
  }
  return lengths;
}

TEST(AttentionCalls, CoverEveryDocumentOnce) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<std::int32_t> cu = borders(random_lengths(seed));
    std::vector<config::Range> want;
    for (std::size_t doc = 0; doc + 1 < cu.size(); ++doc) {
      if (cu[doc + 1] > cu[doc]) {
        want.push_back({cu[doc], cu[doc + 1]});
      }
    }
    for (const AttentionKernels kernels :
         {AttentionKernels::kFastest, AttentionKernels::kCudnn, AttentionKernels::kCudnnPerDocument,
          AttentionKernels::kFlash}) {
      for (const AttentionLimits& limits :
           {AttentionLimits{}, AttentionLimits{.has_packed_cudnn = false},
            AttentionLimits{.deterministic = true}, AttentionLimits{.is_float32 = true}}) {
        std::vector<config::Range> got;
        for (const AttentionCall& call : attention_calls(cu, kernels, limits)) {
          got.insert(got.end(), call.documents.begin(), call.documents.end());
        }
        std::sort(got.begin(), got.end(),
                  [](const auto& a, const auto& b) { return a.begin < b.begin; });
        EXPECT_EQ(got, want) << seed;
      }
    }
  }
}

TEST(AttentionCalls, PackedOnesHoldTheirDocumentsInTheMemoryOfOneRow) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<std::int32_t> cu = borders(random_lengths(seed));
    const std::int64_t room = std::max<std::int64_t>(
        128, (static_cast<std::int64_t>(cu.back()) + kStep - 1) / kStep * kStep);
    for (const AttentionCall& call : attention_calls(cu, AttentionKernels::kFastest, {})) {
      if (call.kernel != AttentionKernel::kCudnnPacked) {
        continue;
      }
      EXPECT_GE(call.capacity, static_cast<std::int64_t>(call.documents.size()));
      EXPECT_LE(call.capacity * call.longest, room) << seed;
      for (const config::Range& document : call.documents) {
        EXPECT_LE(document.size(), call.longest);
      }
    }
  }
}

TEST(AttentionCalls, SimilarDocumentsShareACall) {
  const std::vector<AttentionCall> calls = calls_for({100, 9000, 120, 8000, 90, 200});
  ASSERT_THAT(calls, SizeIs(2));
  // A third document of 9,216 rows would take more than the row, which rounded up has 18,432.
  EXPECT_THAT(calls[0].documents,
              ElementsAre(config::Range{100, 9100}, config::Range{9220, 17220}));
  EXPECT_EQ(calls[0].longest, 9216);
  EXPECT_EQ(calls[1].longest, 256);
  EXPECT_THAT(calls[1].documents, SizeIs(4));
}

TEST(AttentionCalls, RowsOfACommonLengthHaveAKernelOfTheirOwn) {
  EXPECT_THAT(kernels_of(calls_for({32768})), ElementsAre(AttentionKernel::kCudnn));
  const std::vector<AttentionCall> uncommon = calls_for({32700});
  EXPECT_THAT(kernels_of(uncommon), ElementsAre(AttentionKernel::kCudnnPacked));
  EXPECT_EQ(uncommon.front().longest, 32768);
  EXPECT_EQ(calls_for({1}).front().longest, 128);
}

TEST(AttentionCalls, DeterministicRunsAddInOneOrder) {
  EXPECT_THAT(
      kernels_of(calls_for({4096, 5, 3000}, AttentionKernels::kFastest, {.deterministic = true})),
      ElementsAre(AttentionKernel::kFlash));
}

TEST(AttentionCalls, WithoutPackedKernelsShortDocumentsShareFlashAttention) {
  const AttentionLimits older{.has_packed_cudnn = false};
  EXPECT_THAT(kernels_of(calls_for({4096, 5, 3, 3000, 1}, AttentionKernels::kFastest, older)),
              ElementsAre(AttentionKernel::kCudnn, AttentionKernel::kFlash, AttentionKernel::kCudnn,
                          AttentionKernel::kFlash));
  EXPECT_THAT(kernels_of(calls_for({4096, 5, 3, 1}, AttentionKernels::kCudnn, older)),
              ElementsAre(AttentionKernel::kCudnn, AttentionKernel::kCudnn, AttentionKernel::kCudnn,
                          AttentionKernel::kFlash));
}

TEST(AttentionCalls, ARowWithoutTokensNeedsNone) { EXPECT_THAT(calls_for({0, 0}), IsEmpty()); }

TEST(AttentionCalls, FewKernelsServeManyRows) {
  std::vector<std::pair<std::int64_t, std::int64_t>> built;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    std::lognormal_distribution<double> length(8.7, 0.8);
    std::vector<std::int32_t> lengths;
    for (std::int32_t left = 65536; left > 0; left -= lengths.back()) {
      lengths.push_back(std::clamp(static_cast<std::int32_t>(length(random)), 1, left));
    }
    for (const AttentionCall& call : calls_for(lengths)) {
      built.emplace_back(call.capacity, call.longest);
    }
  }
  std::sort(built.begin(), built.end());
  built.erase(std::unique(built.begin(), built.end()), built.end());
  EXPECT_LE(built.size(), 200U);
}

}  // namespace
}  // namespace longhaul::ops
