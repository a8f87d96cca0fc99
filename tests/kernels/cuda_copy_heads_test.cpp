// Heads on their way, on a GPU: the bits of a copy that its own rope turns afterwards, and near the
// CPU's.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "base/error.h"
#include "kernels/copy_heads_cases.h"
#include "kernels/cuda_cases.h"
#include "kernels/cuda_table.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using testing::CopyHeadsBench;
using testing::CopyHeadsCase;
using testing::DeviceArray;
using testing::DeviceMatrix;
using testing::Matrix;

class CudaCopyHeads : public ::testing::TestWithParam<Dtype> {
 protected:
  /// What one call makes of the targets, each beginning `shift` elements after a border.
  [[nodiscard]] static std::vector<Matrix> results(const CopyHeadsBench& bench, bool inverse,
                                                   std::size_t shift) {
    const DeviceMatrix source(bench.source(), GetParam(), shift);
    const DeviceArray<float> cosine(bench.cosine(), shift);
    const DeviceArray<float> sine(bench.sine(), shift);
    std::deque<DeviceMatrix> targets;
    std::vector<HeadSegment> segments;
    for (std::size_t i = 0; i < bench.size(); ++i) {
      targets.emplace_back(bench.target(i), GetParam(), shift);
      segments.push_back(bench.segment_at(i, source.data(), targets.back().data()));
    }
    CopyHeads call = bench.call(cosine.data(), sine.data(), inverse);
    call.segments = segments.data();
    call.num_segments = static_cast<std::int64_t>(segments.size());
    cuda_kernels().copy_heads(call, nullptr);
    std::vector<Matrix> read;
    for (const DeviceMatrix& target : targets) {
      read.push_back(target.read());
    }
    return read;
  }

  /// Segment `i` after a plain copy and the device's rope.
  [[nodiscard]] static Matrix copied_and_turned(const CopyHeadsBench& bench, std::size_t i,
                                                bool inverse) {
    const DeviceMatrix x(bench.copied(i), GetParam());
    const DeviceArray<float> cosine(bench.cosine());
    const DeviceArray<float> sine(bench.sine());
    if (bench.segment(i).rotated) {
      cuda_kernels().rope(bench.rope(i, x.data(), cosine.data(), sine.data(), inverse), nullptr);
    }
    return x.read();
  }
};

INSTANTIATE_TEST_SUITE_P(Types, CudaCopyHeads, ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16),
                         [](const auto& test) {
                           return test.param == Dtype::kFloat32 ? "fp32" : "bf16";
                         });

TEST_P(CudaCopyHeads, GivesTheBitsOfACopyThatIsTurnedAfterwards) {
  for (const CopyHeadsCase& test : testing::copy_heads_cases()) {
    for (const bool inverse : {false, true}) {
      const CopyHeadsBench bench(test, GetParam());
      const std::vector<Matrix> got = results(bench, inverse, 0);
      const std::vector<Matrix> shifted = results(bench, inverse, 1);
      for (std::size_t i = 0; i < bench.size(); ++i) {
        const Matrix expected = copied_and_turned(bench, i, inverse);
        ASSERT_EQ(got[i], expected) << test.name << ", segment " << i;
        ASSERT_EQ(shifted[i], expected) << test.name << ", segment " << i << ", off a border";
      }
    }
  }
}

TEST_P(CudaCopyHeads, EqualsTheCpu) {
  // A unit in the last place of what is at most √2, where the two fuse other products.
  const double limit = GetParam() == Dtype::kBFloat16 ? 0x1.0p-7 : 1e-6;
  for (const CopyHeadsCase& test : testing::copy_heads_cases()) {
    const CopyHeadsBench bench(test, GetParam());
    const std::vector<Matrix> got = results(bench, false, 0);
    for (std::size_t i = 0; i < bench.size(); ++i) {
      Matrix cpu = bench.copied(i);
      if (bench.segment(i).rotated) {
        cpu_kernels().rope(
            bench.rope(i, cpu.data(), bench.cosine().data(), bench.sine().data(), false), nullptr);
      }
      const auto expected = [&](std::int64_t row, std::int64_t column) {
        return cpu.at(row, column);
      };
      ASSERT_EQ(difference(got[i], Dtype::kFloat32, limit, 1, expected), "")
          << test.name << ", segment " << i;
    }
  }
}

TEST(CudaCopyHeadsTable, RefusesOtherElementTypes) {
  HeadSegment segment;
  const CopyHeads call{.dtype = Dtype::kFloat16, .segments = &segment, .num_segments = 1};
  EXPECT_THROW(cuda_kernels().copy_heads(call, nullptr), base::InternalError);
}

}  // namespace
}  // namespace longhaul::kernels
