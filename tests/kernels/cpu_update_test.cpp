// AdamW, embedding rows and the sum of squares against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernel_cases.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using testing::Matrix;
using testing::NamedTable;
using testing::Numbers;

class UpdateKernels : public ::testing::TestWithParam<NamedTable> {
 protected:
  [[nodiscard]] const KernelTable& table() const { return GetParam().table; }
};

INSTANTIATE_TEST_SUITE_P(Tables, UpdateKernels, ::testing::ValuesIn(testing::runnable_tables()),
                         [](const auto& test) { return test.param.name; });

/// AdamW of one value as torch.optim.AdamW computes it, in double.
struct PlainAdamW {
  double weight = 0;
  double m = 0;
  double v = 0;
  void step(int t, double gradient, double rate, double decay) {
    weight *= 1 - rate * decay;
    m = 0.9 * m + 0.1 * gradient;
    v = 0.95 * v + 0.05 * gradient * gradient;
    const double m_hat = m / (1 - std::pow(0.9, t));
    const double v_hat = v / (1 - std::pow(0.95, t));
    weight -= rate * m_hat / (std::sqrt(v_hat) + 1e-8);
  }
};

AdamW adamw_call(int t, double rate, double decay, float factor) {
  return {.learning_rate = rate,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-8,
          .weight_decay = decay,
          .bias_correction1 = 1 - std::pow(0.9, t),
          .bias_correction2 = 1 - std::pow(0.95, t),
          .gradient_factor = factor};
}

TEST_P(UpdateKernels, AdamWFollowsTheFormulaOverManySteps) {
  for (const std::int64_t count : {0, 1, 5, 16, 33, 1000}) {
    Numbers numbers(static_cast<std::uint64_t>(count) + 1);
    const auto size = static_cast<std::size_t>(count);
    std::vector<float> weight(size);
    std::vector<float> m(size, 0);
    std::vector<float> v(size, 0);
    std::vector<float> gradient(size);
    std::vector<PlainAdamW> plain(size);
    for (std::size_t i = 0; i < size; ++i) {
      weight[i] = static_cast<float>(numbers.next(1));
      plain[i].weight = weight[i];
    }
    for (int t = 1; t <= 12; ++t) {
      const double rate = 1e-2 / t;
      const float factor = t % 2 == 0 ? 0.25F : 1.0F;
      for (std::size_t i = 0; i < size; ++i) {
        // Zero and tiny gradients too: the denominator is then epsilon alone or nearly so.
        gradient[i] = i % 5 == 0 ? 0.0F : static_cast<float>(numbers.next(i % 3 == 0 ? 1e-9 : 2));
        plain[i].step(t, static_cast<double>(gradient[i]) * factor, rate, 0.1);
      }
      AdamW call = adamw_call(t, rate, 0.1, factor);
      call.weight = weight.data();
      call.exp_avg = m.data();
      call.exp_avg_sq = v.data();
      call.gradient = gradient.data();
      call.count = count;
      table().adamw(call, nullptr);
    }
    for (std::size_t i = 0; i < size; ++i) {
      // Moments within a few roundings of the largest gradient that they averaged.
      ASSERT_NEAR(weight[i], plain[i].weight, 1e-6) << i;
      ASSERT_NEAR(m[i], plain[i].m, 2e-7) << i;
      ASSERT_NEAR(v[i], plain[i].v, 2e-6 * plain[i].v) << i;
    }
  }
}

TEST_P(UpdateKernels, AdamWRoundsTheNewWeightIntoItsCopy) {
  std::vector<float> weight(21);
  Numbers numbers(4);
  for (float& value : weight) {
    value = static_cast<float>(numbers.next(1));
  }
  std::vector<float> m(21, 0);
  std::vector<float> v(21, 0);
  const std::vector<float> gradient(21, 0.5F);
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
    Matrix copy(dtype, 1, 21);
    AdamW call = adamw_call(1, 1e-3, 0, 1);
    call.weight = weight.data();
    call.exp_avg = m.data();
    call.exp_avg_sq = v.data();
    call.gradient = gradient.data();
    call.copy = copy.data();
    call.copy_dtype = dtype;
    call.count = 21;
    table().adamw(call, nullptr);
    Matrix expected(dtype, 1, 21);
    for (std::int64_t i = 0; i < 21; ++i) {
      expected.set(0, i, weight[static_cast<std::size_t>(i)]);
    }
    EXPECT_EQ(copy, expected);
  }
}

TEST_P(UpdateKernels, AdamWLetsNanThrough) {
  std::vector<float> weight = {1, 1, 1};
  std::vector<float> m(3, 0);
  std::vector<float> v(3, 0);
  const std::vector<float> gradient = {1, std::numeric_limits<float>::quiet_NaN(), 1};
  AdamW call = adamw_call(1, 1e-3, 0, 1);
  call.weight = weight.data();
  call.exp_avg = m.data();
  call.exp_avg_sq = v.data();
  call.gradient = gradient.data();
  call.count = 3;
  table().adamw(call, nullptr);
  EXPECT_TRUE(std::isnan(weight[1]));
  EXPECT_TRUE(std::isfinite(weight[0]) && std::isfinite(weight[2]));
}

TEST_P(UpdateKernels, GatherCopiesRowsOfTheTable) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
    for (const std::int64_t width : {1, 7, 64, 65}) {
      Numbers numbers(5);
      const Matrix rows(dtype, 6, width, numbers, 1, 0);
      const std::vector<std::int32_t> ids = {5, 0, 3, 3, 0, 5, 1};
      Matrix out(dtype, 7, width, 2);
      table().embedding_gather({dtype, rows.data(), ids.data(), out.data(), out.pitch(), 7, width},
                               nullptr);
      for (std::int64_t i = 0; i < 7; ++i) {
        for (std::int64_t column = 0; column < width; ++column) {
          ASSERT_EQ(out.at(i, column), rows.at(ids[static_cast<std::size_t>(i)], column));
        }
      }
      EXPECT_TRUE(out.padding_is_intact());
      table().embedding_gather({dtype, rows.data(), nullptr, out.data(), out.pitch(), 0, width},
                               nullptr);
    }
  }
}

TEST_P(UpdateKernels, ScatterAddsEqualIdsInRowOrder) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
    for (const std::int64_t width : {1, 63, 64, 65, 200}) {
      Numbers numbers(6);
      const Matrix dout(dtype, 9, width, numbers, 1e4);
      const std::vector<std::int32_t> ids = {2, 0, 2, 2, 1, 0, 2, 2, 0};
      std::vector<float> expected(static_cast<std::size_t>(3 * width), 0.125F);
      for (std::int64_t row = 0; row < 9; ++row) {
        for (std::int64_t i = 0; i < width; ++i) {
          // fp32 sums of numbers of this size round: another order gives other bits.
          expected[static_cast<std::size_t>(ids[static_cast<std::size_t>(row)] * width + i)] +=
              static_cast<float>(dout.at(row, i));
        }
      }
      for (const int threads : {1, 3}) {
        std::vector<float> sums(expected.size(), 0.125F);
        testing::with_threads(threads, [&] {
          table().embedding_scatter(
              {dtype, dout.data(), dout.pitch(), ids.data(), sums.data(), 9, width}, nullptr);
        });
        EXPECT_EQ(sums, expected) << width;
      }
    }
  }
}

TEST_P(UpdateKernels, ScatterOfNoRowsChangesNothing) {
  std::vector<float> sums(10, 3);
  table().embedding_scatter({Dtype::kFloat32, nullptr, 10, nullptr, sums.data(), 0, 10}, nullptr);
  EXPECT_EQ(sums, std::vector<float>(10, 3));
}

TEST_P(UpdateKernels, SumOfSquaresIsRightAndTheSameForAnyNumberOfThreads) {
  for (const std::int64_t count : {0, 1, 7, 16383, 16384, 16385, 100003}) {
    Numbers numbers(7);
    std::vector<float> values(static_cast<std::size_t>(count));
    long double want = 0;
    for (float& value : values) {
      value = static_cast<float>(numbers.next(3));
      want += static_cast<long double>(value) * value;
    }
    double one = -1;
    double three = -2;
    testing::with_threads(1, [&] { one = table().sum_of_squares(values.data(), count, nullptr); });
    testing::with_threads(3,
                          [&] { three = table().sum_of_squares(values.data(), count, nullptr); });
    EXPECT_EQ(one, three) << count;
    EXPECT_NEAR(one, static_cast<double>(want), 1e-12 * static_cast<double>(want)) << count;
  }
}

TEST_P(UpdateKernels, SumOfSquaresDoesNotOverflowAndShowsWhatIsNotFinite) {
  std::vector<float> values(20000, 1e30F);
  EXPECT_NEAR(table().sum_of_squares(values.data(), 20000, nullptr) / 2e64, 1, 1e-6);
  values[17000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(table().sum_of_squares(values.data(), 20000, nullptr)));
  values[17000] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(table().sum_of_squares(values.data(), 20000, nullptr)));
}

}  // namespace
}  // namespace longhaul::kernels
