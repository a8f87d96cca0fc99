// AdamW with moments in bf16: unbiased against the formula in double, the same bits for any cut of
// the elements, and no update too small to count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/kernel_cases.h"

namespace longhaul::kernels {
namespace {

using testing::NamedTable;
using testing::Numbers;
using Halves = std::vector<std::uint16_t>;

class Bf16Moments : public ::testing::TestWithParam<NamedTable> {
 protected:
  [[nodiscard]] const KernelTable& table() const { return GetParam().table; }
};

INSTANTIATE_TEST_SUITE_P(Tables, Bf16Moments, ::testing::ValuesIn(testing::runnable_tables()),
                         [](const auto& test) { return test.param.name; });

/// An optimizer's state and gradient.
struct State {
  explicit State(std::size_t count)
      : weight(count, 1), m(count, 0), v(count, 0), gradient(count, 0) {}
  std::vector<float> weight;
  Halves m;
  Halves v;
  std::vector<float> gradient;
};

State random_state(std::size_t count) {
  State state(count);
  Numbers numbers(3);
  for (std::size_t i = 0; i < count; ++i) {
    const double scale = std::pow(10.0, numbers.next(4));
    state.weight[i] = static_cast<float>(numbers.next(1));
    state.m[i] = base::float_to_bf16(static_cast<float>(numbers.next(scale)));
    state.v[i] = base::float_to_bf16(static_cast<float>(std::abs(numbers.next(scale * scale))));
    state.gradient[i] = static_cast<float>(numbers.next(scale));
  }
  return state;
}

constexpr double kBeta1 = 0.9;

/// One step of elements [begin, end); element 0 of the state is number `place` of the masters.
void step(const KernelTable& table, State& state, std::uint64_t key, double beta2,
          std::size_t begin, std::size_t end, std::int64_t place = 0) {
  table.adamw({.weight = state.weight.data() + begin,
               .exp_avg = state.m.data() + begin,
               .exp_avg_sq = state.v.data() + begin,
               .moment_dtype = base::Dtype::kBFloat16,
               .rounding_key = key,
               .first_element = place + static_cast<std::int64_t>(begin),
               .gradient = state.gradient.data() + begin,
               .count = static_cast<std::int64_t>(end - begin),
               .learning_rate = 1e-3,
               .beta1 = kBeta1,
               .beta2 = beta2,
               .epsilon = 1e-8,
               .weight_decay = 0.1},
              nullptr);
}

void step(const KernelTable& table, State& state, std::uint64_t key, double beta2) {
  step(table, state, key, beta2, 0, state.weight.size());
}

std::uint64_t key_of(std::uint64_t step) {
  return base::CounterRng(42, base::RngPurpose::kMomentRounding).bits64(step);
}

/// Distance of the bf16 numbers around `value`, which is no power of two times a whole one.
double spacing(double value) {
  return std::max(std::exp2(std::floor(std::log2(std::abs(value))) - 7), 0x1.0p-133);
}

double mean_of(const Halves& halves) {
  double sum = 0;
  for (const std::uint16_t half : halves) {
    sum += static_cast<double>(base::bf16_to_float(half));
  }
  return sum / static_cast<double>(halves.size());
}

TEST_P(Bf16Moments, AreTheFormulasInTheMeanOverManySteps) {
  constexpr std::size_t kCount = 203;
  constexpr int kKeys = 4000;
  const State before = random_state(kCount);
  std::vector<double> m_sum(kCount, 0);
  std::vector<double> v_sum(kCount, 0);
  for (int i = 0; i < kKeys; ++i) {
    State state = before;
    step(table(), state, key_of(static_cast<std::uint64_t>(i)), 0.95);
    for (std::size_t at = 0; at < kCount; ++at) {
      m_sum[at] += static_cast<double>(base::bf16_to_float(state.m[at]));
      v_sum[at] += static_cast<double>(base::bf16_to_float(state.v[at]));
    }
  }
  for (std::size_t at = 0; at < kCount; ++at) {
    const auto g = static_cast<double>(before.gradient[at]);
    const double m0 = static_cast<double>(base::bf16_to_float(before.m[at]));
    const double m = kBeta1 * m0 + (1 - kBeta1) * g;
    const double v = 0.95 * static_cast<double>(base::bf16_to_float(before.v[at])) + 0.05 * g * g;
    // Two neighbours, each with its probability: at most half their distance per draw, 5 standard
    // errors; and fp32's rounding of the two terms.
    const double error = 5 * 0.5 / std::sqrt(static_cast<double>(kKeys));
    EXPECT_NEAR(m_sum[at] / kKeys, m, error * spacing(m) + 1e-6 * (std::abs(m0) + std::abs(g)));
    EXPECT_NEAR(v_sum[at] / kKeys, v, error * spacing(v) + 1e-6 * v);
  }
}

TEST_P(Bf16Moments, StayWithinOneNumberOfTheFormula) {
  constexpr std::size_t kCount = 1001;
  const State before = random_state(kCount);
  State state = before;
  step(table(), state, 7, 0.95);
  int away = 0;  // from the nearest
  for (std::size_t at = 0; at < kCount; ++at) {
    const auto g = static_cast<double>(before.gradient[at]);
    const double v = 0.95 * static_cast<double>(base::bf16_to_float(before.v[at])) + 0.05 * g * g;
    EXPECT_NEAR(base::bf16_to_float(state.v[at]), v, spacing(v) * 1.001);
    away += state.v[at] == base::float_to_bf16(static_cast<float>(v)) ? 0 : 1;
  }
  EXPECT_NEAR(away, 0.25 * kCount, 5 * std::sqrt(kCount * 0.25 * 0.75));
}

TEST_P(Bf16Moments, DoNotDependOnHowTheElementsAreCut) {
  constexpr std::size_t kCount = 1003;
  const State before = random_state(kCount);
  State whole = before;
  testing::with_threads(1, [&] { step(table(), whole, 99, 0.95, 0, kCount, 5000); });
  State cut = before;
  testing::with_threads(3, [&] {
    std::size_t begin = 0;
    for (const std::size_t end : {1, 2, 19, 500, 500, 767, 1003}) {
      step(table(), cut, 99, 0.95, begin, static_cast<std::size_t>(end), 5000);
      begin = static_cast<std::size_t>(end);
    }
  });
  EXPECT_EQ(cut.m, whole.m);
  EXPECT_EQ(cut.v, whole.v);
  State other_key = before;
  step(table(), other_key, 100, 0.95, 0, kCount, 5000);
  EXPECT_NE(other_key.m, whole.m);
  EXPECT_NE(other_key.v, whole.v);
  State other_place = before;
  step(table(), other_place, 99, 0.95, 0, kCount, 5001);
  EXPECT_NE(other_place.v, whole.v);
}

TEST_P(Bf16Moments, AreRoundedIndependentlyOfEachOther) {
  constexpr std::size_t kCount = 10000;
  State state(kCount);
  std::fill(state.m.begin(), state.m.end(), base::float_to_bf16(1));
  std::fill(state.v.begin(), state.v.end(), base::float_to_bf16(1));
  step(table(), state, 3, kBeta1);  // both are 0.9 before rounding: 230.4 of 256, up in 40 %
  int equal = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    equal += state.m[i] == state.v[i] ? 1 : 0;
  }
  const double want = 0.4 * 0.4 + 0.6 * 0.6;
  EXPECT_NEAR(equal, want * kCount, 5 * std::sqrt(want * (1 - want) * kCount));
}

TEST_P(Bf16Moments, MoveTheWeightByTheirValuesBeforeRounding) {
  constexpr std::size_t kCount = 333;
  State rounded = random_state(kCount);
  std::vector<float> weight = rounded.weight;
  std::vector<float> m(kCount);
  std::vector<float> v(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    m[i] = base::bf16_to_float(rounded.m[i]);
    v[i] = base::bf16_to_float(rounded.v[i]);
  }
  table().adamw({.weight = weight.data(),
                 .exp_avg = m.data(),
                 .exp_avg_sq = v.data(),
                 .gradient = rounded.gradient.data(),
                 .count = kCount,
                 .learning_rate = 1e-3,
                 .beta1 = kBeta1,
                 .beta2 = 0.95,
                 .epsilon = 1e-8,
                 .weight_decay = 0.1},
                nullptr);
  step(table(), rounded, 1, 0.95);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(rounded.weight[i], weight[i], 1e-6 * std::max(1.0F, std::abs(weight[i]))) << i;
  }
}

/// With β₂ = 0.999 a step changes v by less than half the distance of bf16 numbers: rounded to the
/// nearest it would stay where it is for good.
TEST_P(Bf16Moments, LetTheSecondMomentDecayAndGrowInTinySteps) {
  constexpr std::size_t kCount = 4096;
  constexpr int kSteps = 1500;
  const double decayed = std::pow(0.999, kSteps);
  State falling(kCount);
  State rising(kCount);
  std::fill(falling.v.begin(), falling.v.end(), base::float_to_bf16(1));
  std::fill(rising.gradient.begin(), rising.gradient.end(), 1.0F);
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    step(table(), falling, key_of(i), 0.999);
    step(table(), rising, key_of(i), 0.999);
  }
  // A standard deviation of 5 % per element, 0.08 % of their mean.
  EXPECT_NEAR(mean_of(falling.v), decayed, 0.004 * decayed);
  EXPECT_NEAR(mean_of(rising.v), 1 - decayed, 0.004 * (1 - decayed));
}

TEST_P(Bf16Moments, LeaveZeroForValuesBelowTheSmallestBf16) {
  constexpr std::size_t kCount = 8192;
  constexpr double kSmallest = 0x1.0p-133;
  State state(kCount);
  std::fill(state.gradient.begin(), state.gradient.end(), 0x1.0p-64F);
  const double beta2 = 1 - 0x1.0p-9;  // v grows by 2⁻¹³⁷, a sixteenth of the smallest number
  double want = 0;
  for (std::uint64_t i = 0; i < 64; ++i) {
    step(table(), state, key_of(i), beta2);
    want = beta2 * want + 0x1.0p-137;
    if (i == 0) {
      const double error = std::sqrt(1.0 / 16 * 15 / 16 / kCount);
      EXPECT_NEAR(mean_of(state.v) / kSmallest, 1.0 / 16, 5 * error);
    }
  }
  EXPECT_NEAR(mean_of(state.v) / want, 1, 0.03);
  for (const std::uint16_t half : state.v) {
    ASSERT_EQ(half & 0x8000U, 0U) << "the second moment is never negative";
  }
}

TEST_P(Bf16Moments, LetNanAndInfinityThrough) {
  State state(3);
  state.gradient = {std::numeric_limits<float>::quiet_NaN(), 1e30F, 1};
  step(table(), state, 1, 0.95);
  EXPECT_TRUE(std::isnan(base::bf16_to_float(state.m[0])));
  EXPECT_TRUE(std::isnan(base::bf16_to_float(state.v[0])));
  EXPECT_TRUE(std::isnan(state.weight[0]));
  EXPECT_TRUE(std::isinf(base::bf16_to_float(state.v[1])));
  EXPECT_TRUE(std::isfinite(base::bf16_to_float(state.m[1])));
  EXPECT_TRUE(std::isfinite(base::bf16_to_float(state.v[2])));
  step(table(), state, 1, 0.95, 0, 0);  // no element
}

}  // namespace
}  // namespace longhaul::kernels
