// Scaled copies on a GPU: the bits of the plain formula, which are the CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cuda_cases.h"
#include "kernels/cuda_table.h"
#include "kernels/scaled_copies_cases.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using testing::DeviceArray;
using testing::DeviceMatrix;
using testing::Matrix;
using testing::ScaledCopiesBench;
using testing::ScaledCopiesCase;

class CudaScaledCopies : public ::testing::TestWithParam<Dtype> {
 protected:
  /// What one call makes of the targets; sources and targets begin so many elements after a border.
  [[nodiscard]] static std::vector<Matrix> results(const ScaledCopiesBench& bench,
                                                   std::size_t from_shift, std::size_t to_shift) {
    std::deque<DeviceMatrix> sources;
    std::deque<DeviceMatrix> targets;
    std::vector<ScaledSegment> segments;
    for (std::size_t i = 0; i < bench.size(); ++i) {
      sources.emplace_back(bench.source(i), Dtype::kFloat32, from_shift);
      targets.emplace_back(bench.target(i), GetParam(), to_shift);
      segments.push_back(bench.segment_at(i, sources.back().data(), targets.back().data()));
    }
    cuda_kernels().scaled_copies({.dtype = GetParam(),
                                  .segments = segments.data(),
                                  .num_segments = static_cast<std::int64_t>(segments.size())},
                                 nullptr);
    std::vector<Matrix> read;
    for (const DeviceMatrix& target : targets) {
      read.push_back(target.read());
    }
    return read;
  }
};

INSTANTIATE_TEST_SUITE_P(Types, CudaScaledCopies,
                         ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16),
                         [](const auto& test) {
                           return test.param == Dtype::kFloat32 ? "fp32" : "bf16";
                         });

TEST_P(CudaScaledCopies, GivesTheBitsOfTheProductRoundedOnce) {
  for (const ScaledCopiesCase& test : testing::scaled_copies_cases()) {
    const ScaledCopiesBench bench(test, GetParam());
    for (const auto& [from_shift, to_shift] : {std::pair{0, 0}, {1, 0}, {0, 1}, {4, 4}}) {
      const std::vector<Matrix> got =
          results(bench, static_cast<std::size_t>(from_shift), static_cast<std::size_t>(to_shift));
      for (std::size_t i = 0; i < bench.size(); ++i) {
        ASSERT_EQ(got[i], bench.expected(i))
            << test.name << ", segment " << i << ", shifts " << from_shift << ", " << to_shift;
      }
    }
  }
}

TEST_P(CudaScaledCopies, KeepsWhatIsNotANumber) {
  const DeviceArray<float> from({std::numeric_limits<float>::quiet_NaN()});
  const DeviceMatrix to(Matrix(GetParam(), 1, 1), GetParam());
  const ScaledSegment segment{.from = from.data(), .to = to.data(), .rows = 1, .columns = 1};
  cuda_kernels().scaled_copies({.dtype = GetParam(), .segments = &segment, .num_segments = 1},
                               nullptr);
  EXPECT_TRUE(std::isnan(to.read().at(0, 0)));
}

TEST(CudaScaledCopiesTable, RefusesOtherElementTypes) {
  const ScaledSegment segment;
  const ScaledCopies call{.dtype = Dtype::kFloat16, .segments = &segment, .num_segments = 1};
  EXPECT_THROW(cuda_kernels().scaled_copies(call, nullptr), base::InternalError);
}

}  // namespace
}  // namespace longhaul::kernels
