// Heads on their way, on the CPU: the bits of a copy that is turned afterwards, for every
// instruction set that this processor runs and both element types.
#include <gtest/gtest.h>

#include <tuple>

#include "kernels/copy_heads_cases.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using testing::CopyHeadsBench;
using testing::CopyHeadsCase;
using testing::Matrix;
using testing::NamedTable;

class CopyHeadsKernel : public ::testing::TestWithParam<std::tuple<NamedTable, Dtype>> {
 protected:
  [[nodiscard]] const KernelTable& table() const { return std::get<0>(GetParam()).table; }
  [[nodiscard]] Dtype dtype() const { return std::get<1>(GetParam()); }

  /// What one call makes of the targets.
  [[nodiscard]] std::vector<Matrix> results(const CopyHeadsBench& bench, bool inverse) const {
    std::vector<Matrix> targets;
    for (std::size_t i = 0; i < bench.size(); ++i) {
      targets.push_back(bench.target(i));
    }
    std::vector<HeadSegment> segments;
    for (std::size_t i = 0; i < bench.size(); ++i) {
      segments.push_back(bench.segment_at(i, bench.source().data(), targets[i].data()));
    }
    CopyHeads call = bench.call(bench.cosine().data(), bench.sine().data(), inverse);
    call.segments = segments.data();
    call.num_segments = static_cast<std::int64_t>(segments.size());
    table().copy_heads(call, nullptr);
    return targets;
  }
};

INSTANTIATE_TEST_SUITE_P(Tables, CopyHeadsKernel,
                         ::testing::Combine(::testing::ValuesIn(testing::runnable_tables()),
                                            ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  (std::get<1>(test.param) == Dtype::kFloat32 ? "_fp32" : "_bf16");
                         });

TEST_P(CopyHeadsKernel, GivesTheBitsOfACopyThatIsTurnedAfterwards) {
  for (const CopyHeadsCase& test : testing::copy_heads_cases()) {
    for (const bool inverse : {false, true}) {
      const CopyHeadsBench bench(test, dtype());
      const std::vector<Matrix> got = results(bench, inverse);
      for (std::size_t i = 0; i < bench.size(); ++i) {
        Matrix expected = bench.copied(i);
        if (bench.segment(i).rotated) {
          table().rope(
              bench.rope(i, expected.data(), bench.cosine().data(), bench.sine().data(), inverse),
              nullptr);
        }
        ASSERT_EQ(got[i], expected) << test.name << ", segment " << i;
      }
    }
  }
}

TEST_P(CopyHeadsKernel, TurnsHeads) {
  const CopyHeadsCase test{"turned", 3, 6, {{.columns = 12, .rotated = true}}};
  const CopyHeadsBench bench(test, dtype());
  const Matrix forward = results(bench, false).at(0);
  EXPECT_NE(forward, bench.copied(0));
  EXPECT_NE(forward, results(bench, true).at(0));
}

TEST_P(CopyHeadsKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const CopyHeadsCase& test : testing::copy_heads_cases()) {
    const CopyHeadsBench bench(test, dtype());
    std::vector<Matrix> one;
    std::vector<Matrix> three;
    testing::with_threads(1, [&] { one = results(bench, false); });
    testing::with_threads(3, [&] { three = results(bench, false); });
    ASSERT_EQ(one, three) << test.name;
  }
}

}  // namespace
}  // namespace longhaul::kernels
