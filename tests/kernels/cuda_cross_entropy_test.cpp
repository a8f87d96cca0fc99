// Cross-entropy of the CUDA table against the CPU table and the plain formula in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda_cases.h"
#include "kernels/cuda_table.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using testing::DeviceArray;
using testing::DeviceMatrix;
using testing::Matrix;
using testing::Numbers;

class CudaCrossEntropy : public ::testing::TestWithParam<Dtype> {
 protected:
  struct Result {
    Matrix logits;
    std::vector<double> loss;
    std::vector<std::uint8_t> correct;
  };
  [[nodiscard]] static CrossEntropy call(const Matrix& logits, float scale) {
    return {.dtype = GetParam(),
            .pitch = logits.pitch(),
            .rows = logits.rows(),
            .vocab = logits.width(),
            .gradient_scale = scale};
  }
  [[nodiscard]] static Result run_cuda(const Matrix& before,
                                       const std::vector<std::int32_t>& labels, float scale) {
    const DeviceMatrix logits(before, GetParam());
    const DeviceArray<std::int32_t> device_labels(labels);
    const DeviceArray<double> loss(std::vector<double>(labels.size(), -7.0));
    const DeviceArray<std::uint8_t> correct(std::vector<std::uint8_t>(labels.size(), 9));
    CrossEntropy args = call(before, scale);
    args.logits = logits.data();
    args.labels = device_labels.data();
    args.row_loss = loss.data();
    args.correct = correct.data();
    cuda_kernels().cross_entropy(args, nullptr);
    return {logits.read(), loss.read(), correct.read()};
  }
  [[nodiscard]] static Result run_cpu(const Matrix& before, const std::vector<std::int32_t>& labels,
                                      float scale) {
    Result result{before, std::vector<double>(labels.size()),
                  std::vector<std::uint8_t>(labels.size())};
    CrossEntropy args = call(before, scale);
    args.logits = result.logits.data();
    args.labels = labels.data();
    args.row_loss = result.loss.data();
    args.correct = result.correct.data();
    cpu_kernels().cross_entropy(args, nullptr);
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(Types, CudaCrossEntropy,
                         ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16),
                         [](const auto& test) {
                           return test.param == Dtype::kFloat32 ? "fp32" : "bf16";
                         });

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

TEST_P(CudaCrossEntropy, EqualsTheFormulaAndTheCpu) {
  // Around the vectors of one round of either block size, and real vocabularies.
  for (const std::int64_t vocab :
       {1, 2, 7, 50, 257, 4095, 4096, 4097, 16384, 16385, 49152, 152064, 152065}) {
    for (const std::int64_t gap : {0, 1, 7}) {
      Numbers numbers(static_cast<std::uint64_t>(vocab));
      const Matrix before(GetParam(), 3, vocab, numbers, 8, gap);
      const std::vector<std::int32_t> labels = {0, static_cast<std::int32_t>(vocab - 1),
                                                static_cast<std::int32_t>(vocab / 2)};
      constexpr float kScale = 0.125F;
      const Result got = run_cuda(before, labels, kScale);
      const Result cpu = run_cpu(before, labels, kScale);
      std::vector<double> lse;
      for (std::int64_t row = 0; row < 3; ++row) {
        lse.push_back(plain_logsumexp(before, row));
        const auto at = static_cast<std::size_t>(row);
        const double want = lse[at] - before.at(row, labels[at]);
        ASSERT_NEAR(got.loss[at], want, 2e-6 * std::max(want, 1.0)) << vocab << ", gap " << gap;
      }
      EXPECT_EQ(got.correct, cpu.correct) << vocab;
      const auto expected = [&](std::int64_t row, std::int64_t column) {
        const auto at = static_cast<std::size_t>(row);
        const double p = std::exp(before.at(row, column) - lse[at]);
        return (p - (column == labels[at] ? 1.0 : 0.0)) * static_cast<double>(kScale);
      };
      ASSERT_EQ(compare(got.logits, cpu.logits, GetParam(), 4e-6, 1e-4, expected), "")
          << vocab << ", gap " << gap;
    }
  }
}

TEST_P(CudaCrossEntropy, FindsTheSameArgMaxAsTheCpuInManyRows) {
  for (const std::int64_t vocab : {7, 64, 20000}) {
    const std::int64_t rows = vocab == 20000 ? 40 : 1000;
    Numbers numbers(1);
    Matrix before(GetParam(), rows, vocab, 0);
    std::vector<std::int32_t> labels;
    for (std::int64_t row = 0; row < rows; ++row) {
      // Small whole numbers: many equal entries, and labels that win, tie or lose.
      for (std::int64_t i = 0; i < vocab; ++i) {
        before.set(row, i, std::floor(numbers.next(4)));
      }
      const auto label = static_cast<std::int32_t>(row * 31 % vocab);
      before.set(row, label, row % 2 == 0 ? 3 : 4);
      labels.push_back(label);
    }
    const Result got = run_cuda(before, labels, 0);
    const Result cpu = run_cpu(before, labels, 0);
    EXPECT_EQ(got.correct, cpu.correct);
    EXPECT_EQ(got.logits, before);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      ASSERT_NEAR(got.loss[i], cpu.loss[i], 4e-6 * std::max(cpu.loss[i], 1.0));
    }
  }
}

TEST_P(CudaCrossEntropy, AcceptsNoRows) {
  EXPECT_TRUE(run_cuda(Matrix(GetParam(), 0, 10), {}, 1).loss.empty());
}

TEST_P(CudaCrossEntropy, SurvivesLogitsOfTenThousandAndMaskedOnes) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double low : {-1e4, -infinity}) {
    for (const std::int64_t vocab : {5, 20000}) {
      Matrix before(GetParam(), 2, vocab, 0);
      for (std::int64_t i = 0; i < vocab; ++i) {
        before.set(0, i, i == 2 ? 1e4 : low);
        before.set(1, i, i == vocab - 1 ? 1e4 : low);
      }
      const Result got = run_cuda(before, {2, 3}, 1);
      EXPECT_EQ(got.loss[0], 0.0);
      EXPECT_EQ(got.correct, (std::vector<std::uint8_t>{1, 0}));
      const double distance = before.at(0, 2) - before.at(0, 0);
      if (std::isinf(low)) {
        EXPECT_EQ(got.loss[1], infinity);
      } else {
        EXPECT_NEAR(got.loss[1], distance, 1e-9 * distance);
      }
      for (std::int64_t i = 0; i < vocab; ++i) {
        ASSERT_EQ(got.logits.at(0, i), 0.0) << i;
        ASSERT_EQ(got.logits.at(1, i), i == vocab - 1 ? 1.0 : (i == 3 ? -1.0 : 0.0)) << i;
      }
    }
  }
}

TEST_P(CudaCrossEntropy, NanReachesTheLossOfItsRowOnly) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::int64_t at : {0, 6, 18}) {
    Numbers numbers(5);
    Matrix before(GetParam(), 3, 19, numbers);
    before.set(1, at, nan);
    const Result got = run_cuda(before, {1, 1, 1}, 1);
    EXPECT_TRUE(std::isfinite(got.loss[0]) && std::isfinite(got.loss[2]));
    EXPECT_TRUE(std::isnan(got.loss[1])) << at;
    EXPECT_EQ(got.correct[1], 0);
    EXPECT_TRUE(std::isnan(got.logits.at(1, 1)));
    EXPECT_TRUE(std::isfinite(got.logits.at(0, 1)) && std::isfinite(got.logits.at(2, 1)));
  }
}

TEST_P(CudaCrossEntropy, GivesTheSameBitsEveryTime) {
  Numbers numbers(6);
  const Matrix before(GetParam(), 9, 49152, numbers, 4, 0);
  const std::vector<std::int32_t> labels = {0, 1, 2, 3, 4, 49151, 4098, 7, 8};
  const Result first = run_cuda(before, labels, 0.01F);
  for (int run = 0; run < 20; ++run) {
    const Result again = run_cuda(before, labels, 0.01F);
    ASSERT_EQ(again.loss, first.loss);
    ASSERT_EQ(again.logits, first.logits);
  }
}

}  // namespace
}  // namespace longhaul::kernels
