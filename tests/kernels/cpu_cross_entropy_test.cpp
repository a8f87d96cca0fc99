// Cross-entropy and its gradient in place of the logits, against the plain formula in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "kernels/kernel_cases.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using testing::Matrix;
using testing::NamedTable;
using testing::Numbers;

class CrossEntropyKernel : public ::testing::TestWithParam<std::tuple<NamedTable, Dtype>> {
 protected:
  [[nodiscard]] Dtype dtype() const { return std::get<1>(GetParam()); }

  struct Result {
    std::vector<double> loss;
    std::vector<std::uint8_t> correct;
  };
  Result run(Matrix& logits, const std::vector<std::int32_t>& labels, float scale) const {
    Result result{std::vector<double>(labels.size(), -7.0),
                  std::vector<std::uint8_t>(labels.size(), 9)};
    std::get<0>(GetParam())
        .table.cross_entropy({.dtype = dtype(),
                              .logits = logits.data(),
                              .pitch = logits.pitch(),
                              .labels = labels.data(),
                              .row_loss = result.loss.data(),
                              .correct = result.correct.data(),
                              .rows = logits.rows(),
                              .vocab = logits.width(),
                              .gradient_scale = scale},
                             nullptr);
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(Tables, CrossEntropyKernel,
                         ::testing::Combine(::testing::ValuesIn(testing::runnable_tables()),
                                            ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  (std::get<1>(test.param) == Dtype::kFloat32 ? "_fp32" : "_bf16");
                         });

/// log Σ exp(logits) of one row.
double plain_logsumexp(const Matrix& logits, std::int64_t row) {
  double largest = logits.at(row, 0);
  for (std::int64_t i = 1; i < logits.width(); ++i) {
    largest = std::max(largest, logits.at(row, i));
  }
  double sum = 0;
  for (std::int64_t i = 0; i < logits.width(); ++i) {
    sum += std::exp(logits.at(row, i) - largest);
  }
  return largest + std::log(sum);
}

TEST_P(CrossEntropyKernel, EqualsThePlainFormulaWithTheLabelAnywhere) {
  // The sums are blocked by 4,096 columns: sizes around that border, and one column.
  for (const std::int64_t vocab : {1, 2, 7, 50, 257, 4095, 4096, 4097, 8193}) {
    Numbers numbers(static_cast<std::uint64_t>(vocab));
    const Matrix before(dtype(), 3, vocab, numbers, 8);
    const std::vector<std::int32_t> labels = {0, static_cast<std::int32_t>(vocab - 1),
                                              static_cast<std::int32_t>(vocab / 2)};
    Matrix logits = before;
    const float scale = 0.125F;
    const Result result = run(logits, labels, scale);
    std::vector<double> lse;
    for (std::int64_t row = 0; row < 3; ++row) {
      lse.push_back(plain_logsumexp(before, row));
      const auto at = static_cast<std::size_t>(row);
      const double want = lse[at] - before.at(row, labels[at]);
      EXPECT_NEAR(result.loss[at], want, 2e-6 * std::max(want, 1.0)) << vocab;
    }
    const auto expected = [&](std::int64_t row, std::int64_t column) {
      const auto at = static_cast<std::size_t>(row);
      const double p = std::exp(before.at(row, column) - lse[at]);
      return (p - (column == labels[at] ? 1.0 : 0.0)) * static_cast<double>(scale);
    };
    EXPECT_EQ(difference(logits, dtype(), 3e-6, 1e-4, expected), "") << vocab;
  }
}

TEST_P(CrossEntropyKernel, LeavesTheLogitsAloneWithoutAScale) {
  Numbers numbers(2);
  const Matrix before(dtype(), 4, 33, numbers, 3);
  Matrix logits = before;
  const std::vector<std::int32_t> labels = {0, 32, 5, 6};
  const Result plain = run(logits, labels, 0);
  EXPECT_EQ(logits, before);
  const Result with_gradient = run(logits, labels, 0.5F);
  EXPECT_EQ(plain.loss, with_gradient.loss);
  EXPECT_EQ(plain.correct, with_gradient.correct);
}

TEST_P(CrossEntropyKernel, AcceptsNoRows) {
  Matrix logits(dtype(), 0, 10);
  EXPECT_TRUE(run(logits, {}, 1).loss.empty());
}

TEST_P(CrossEntropyKernel, CountsTheFirstOfEqualLargestAsTheArgMax) {
  Matrix logits(dtype(), 4, 9, 1);
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t i = 0; i < 9; ++i) {
      logits.set(row, i, i == 3 || i == 7 ? 2.5 : -1.0);
    }
  }
  const Result result = run(logits, {3, 7, 0, 8}, 0);
  EXPECT_EQ(result.correct, (std::vector<std::uint8_t>{1, 0, 0, 0}));
}

TEST_P(CrossEntropyKernel, FindsTheArgMaxAtEitherEnd) {
  Matrix logits(dtype(), 2, 65, 1);
  logits.set(0, 0, 1);
  logits.set(1, 64, 1);
  const Result result = run(logits, {0, 64}, 0);
  EXPECT_EQ(result.correct, (std::vector<std::uint8_t>{1, 1}));
}

TEST_P(CrossEntropyKernel, SurvivesLogitsOfTenThousand) {
  Matrix logits(dtype(), 3, 5, 1);
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t i = 0; i < 5; ++i) {
      logits.set(row, i, i == 2 ? 1e4 : -1e4);
    }
  }
  const double top = logits.at(0, 2);
  const double bottom = logits.at(0, 0);
  const Result result = run(logits, {2, 0, 4}, 1);
  EXPECT_EQ(result.loss[0], 0.0);
  EXPECT_NEAR(result.loss[1], top - bottom, 1e-9 * top);
  EXPECT_NEAR(result.loss[2], top - bottom, 1e-9 * top);
  const double expected[3][5] = {{0, 0, 0, 0, 0}, {-1, 0, 1, 0, 0}, {0, 0, 1, 0, -1}};
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(logits.at(row, i), expected[row][i], 1e-30) << row << ", " << i;
    }
  }
}

/// Softmax of two logits 0 and −x is e^−x / (1 + e^−x): shows the exponential itself.
TEST_P(CrossEntropyKernel, HasAnExponentialGoodToTwoUnitsInTheLastPlace) {
  if (dtype() != Dtype::kFloat32) {
    return;
  }
  constexpr std::int64_t kCount = 5000;
  for (std::int64_t i = 0; i <= kCount; ++i) {
    const double x = 87.3 * static_cast<double>(i) / kCount;
    Matrix logits(Dtype::kFloat32, 1, 2, 0);
    logits.set(0, 1, -x);
    const double exact = logits.at(0, 1);
    run(logits, {0}, 1);
    const double want = std::exp(exact) / (1 + std::exp(exact));
    ASSERT_NEAR(logits.at(0, 1), want, 4e-7 * want) << x;
  }
}

TEST_P(CrossEntropyKernel, LetsProbabilitiesVanishBelowTheRangeOfTheExponential) {
  for (const double x : {87.5, 90.0, 100.0, 150.0, 1e5}) {
    Matrix logits(dtype(), 1, 2, 0);
    logits.set(0, 1, -x);
    const Result result = run(logits, {0}, 1);
    EXPECT_LE(result.loss[0], 1e-30);
    EXPECT_GE(logits.at(0, 1), 0);
    EXPECT_LE(logits.at(0, 1), 0x1.0p-125);
  }
}

TEST_P(CrossEntropyKernel, NanReachesTheLossOfItsRowOnly) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::int64_t at : {0, 6, 18}) {
    Numbers numbers(5);
    Matrix logits(dtype(), 3, 19, numbers);
    logits.set(1, at, nan);
    const Result result = run(logits, {1, 1, 1}, 1);
    EXPECT_TRUE(std::isfinite(result.loss[0]) && std::isfinite(result.loss[2]));
    EXPECT_TRUE(std::isnan(result.loss[1])) << at;
    EXPECT_TRUE(std::isnan(logits.at(1, 1)));
    EXPECT_TRUE(std::isfinite(logits.at(0, 1)) && std::isfinite(logits.at(2, 1)));
  }
}

TEST_P(CrossEntropyKernel, InfinityIsNotTakenForASureAnswer) {
  Matrix logits(dtype(), 1, 9, 0);
  logits.set(0, 4, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(std::isfinite(run(logits, {3}, 1).loss[0]));
}

TEST_P(CrossEntropyKernel, GivesTheSameBitsForAnyNumberOfThreads) {
  Numbers numbers(6);
  const Matrix before(dtype(), 9, 4500, numbers, 4);
  Matrix one = before;
  Matrix three = before;
  const std::vector<std::int32_t> labels = {0, 1, 2, 3, 4, 4499, 4098, 7, 8};
  Result from_one;
  Result from_three;
  testing::with_threads(1, [&] { from_one = run(one, labels, 0.01F); });
  testing::with_threads(3, [&] { from_three = run(three, labels, 0.01F); });
  EXPECT_EQ(from_one.loss, from_three.loss);
  EXPECT_EQ(one, three);
}

}  // namespace
}  // namespace longhaul::kernels
