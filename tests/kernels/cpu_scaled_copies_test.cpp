// Scaled copies on the CPU: the bits of the plain formula, for every instruction set that this
// processor runs and both element types.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "kernels/scaled_copies_cases.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using testing::Matrix;
using testing::NamedTable;
using testing::ScaledCopiesBench;
using testing::ScaledCopiesCase;

class ScaledCopiesKernel : public ::testing::TestWithParam<std::tuple<NamedTable, Dtype>> {
 protected:
  [[nodiscard]] const KernelTable& table() const { return std::get<0>(GetParam()).table; }
  [[nodiscard]] Dtype dtype() const { return std::get<1>(GetParam()); }

  /// What one call makes of the targets.
  [[nodiscard]] std::vector<Matrix> results(const ScaledCopiesBench& bench) const {
    std::vector<Matrix> targets;
    for (std::size_t i = 0; i < bench.size(); ++i) {
      targets.push_back(bench.target(i));
    }
    std::vector<ScaledSegment> segments;
    for (std::size_t i = 0; i < bench.size(); ++i) {
      segments.push_back(bench.segment_at(i, bench.source(i).data(), targets[i].data()));
    }
    table().scaled_copies({.dtype = dtype(),
                           .segments = segments.data(),
                           .num_segments = static_cast<std::int64_t>(segments.size())},
                          nullptr);
    return targets;
  }
};

INSTANTIATE_TEST_SUITE_P(Tables, ScaledCopiesKernel,
                         ::testing::Combine(::testing::ValuesIn(testing::runnable_tables()),
                                            ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  (std::get<1>(test.param) == Dtype::kFloat32 ? "_fp32" : "_bf16");
                         });

TEST_P(ScaledCopiesKernel, GivesTheBitsOfTheProductRoundedOnce) {
  for (const ScaledCopiesCase& test : testing::scaled_copies_cases()) {
    const ScaledCopiesBench bench(test, dtype());
    const std::vector<Matrix> got = results(bench);
    for (std::size_t i = 0; i < bench.size(); ++i) {
      ASSERT_EQ(got[i], bench.expected(i)) << test.name << ", segment " << i;
    }
  }
}

TEST_P(ScaledCopiesKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const ScaledCopiesCase& test : testing::scaled_copies_cases()) {
    const ScaledCopiesBench bench(test, dtype());
    std::vector<Matrix> one;
    std::vector<Matrix> three;
    testing::with_threads(1, [&] { one = results(bench); });
    testing::with_threads(3, [&] { three = results(bench); });
    ASSERT_EQ(one, three) << test.name;
  }
}

TEST_P(ScaledCopiesKernel, RoundsToNearestEven) {
  // Exact in fp32; in bfloat16 three ties and one just above a tie.
  const float from[] = {0x1.01p1F, 0x1.03p1F, -0x1.05p1F, 0x1.0101p1F};
  Matrix to(dtype(), 1, 4);
  const ScaledSegment segment{.from = from,
                              .from_pitch = 4,
                              .to = to.data(),
                              .to_pitch = to.pitch(),
                              .rows = 1,
                              .columns = 4,
                              .scale = 0.5F};
  table().scaled_copies({.dtype = dtype(), .segments = &segment, .num_segments = 1}, nullptr);
  const bool exact = dtype() == Dtype::kFloat32;
  EXPECT_EQ(to.at(0, 0), exact ? 0x1.01p0 : 0x1.00p0);
  EXPECT_EQ(to.at(0, 1), exact ? 0x1.03p0 : 0x1.04p0);
  EXPECT_EQ(to.at(0, 2), exact ? -0x1.05p0 : -0x1.04p0);
  EXPECT_EQ(to.at(0, 3), exact ? 0x1.0101p0 : 0x1.02p0);
}

TEST_P(ScaledCopiesKernel, KeepsWhatIsNotANumber) {
  const float from = std::numeric_limits<float>::quiet_NaN();
  Matrix to(dtype(), 1, 1);
  const ScaledSegment segment{.from = &from, .to = to.data(), .rows = 1, .columns = 1};
  table().scaled_copies({.dtype = dtype(), .segments = &segment, .num_segments = 1}, nullptr);
  EXPECT_TRUE(std::isnan(to.at(0, 0)));
}

}  // namespace
}  // namespace longhaul::kernels
