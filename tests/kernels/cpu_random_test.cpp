// Dropout and uniform noise: masks and numbers are functions of the addresses alone.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "kernels/kernel_cases.h"
#include "kernels/mix.h"

namespace longhaul::kernels {
namespace {

// The formula of all masks: a run goes on with the ones that it began with.
static_assert(pair_word(0x0123456789ABCDEF, 0) == 0x3EFDEA49C590F4EC);
static_assert(pair_word(0x0123456789ABCDEF, 9471) == 0x01817063D3B63111);
static_assert(column_bits(0x1122334455667788, 6) == 0x556677);
static_assert(column_bits(0x1122334455667788, 7) == 0x112233);

using base::Dtype;
using testing::Matrix;
using testing::NamedTable;
using testing::Numbers;

class RandomKernels : public ::testing::TestWithParam<std::tuple<NamedTable, Dtype>> {
 protected:
  [[nodiscard]] const KernelTable& table() const { return std::get<0>(GetParam()).table; }
  [[nodiscard]] Dtype dtype() const { return std::get<1>(GetParam()); }

  /// Dropout of a matrix of ones: 0 where dropped.
  [[nodiscard]] Matrix mask(const std::vector<std::uint64_t>& keys, std::int64_t width,
                            float probability, std::uint64_t seed_key = 5,
                            std::int64_t first_column = 0) const {
    Matrix x(dtype(), static_cast<std::int64_t>(keys.size()), width);
    for (std::int64_t row = 0; row < x.rows(); ++row) {
      for (std::int64_t column = 0; column < width; ++column) {
        x.set(row, column, 1);
      }
    }
    table().dropout(call(x, x, keys, probability, seed_key, first_column), nullptr);
    return x;
  }

  [[nodiscard]] Dropout call(const Matrix& x, Matrix& y, const std::vector<std::uint64_t>& keys,
                             float probability, std::uint64_t seed_key = 5,
                             std::int64_t first_column = 0, bool add = false) const {
    return {.dtype = dtype(),
            .x = x.data(),
            .x_pitch = x.pitch(),
            .y = y.data(),
            .y_pitch = y.pitch(),
            .row_keys = keys.data(),
            .seed_key = seed_key,
            .first_column = first_column,
            .rows = static_cast<std::int64_t>(keys.size()),
            .width = x.width(),
            .probability = probability,
            .add = add};
  }
};

INSTANTIATE_TEST_SUITE_P(Tables, RandomKernels,
                         ::testing::Combine(::testing::ValuesIn(testing::runnable_tables()),
                                            ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  (std::get<1>(test.param) == Dtype::kFloat32 ? "_fp32" : "_bf16");
                         });

/// Keys as the model makes them: (sample, position).
std::vector<std::uint64_t> keys_of(std::uint64_t sample, std::uint64_t count) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < count; ++i) {
    keys.push_back((sample << 32) | i);
  }
  return keys;
}

double kept_share(const Matrix& mask) {
  double kept = 0;
  for (std::int64_t row = 0; row < mask.rows(); ++row) {
    for (std::int64_t column = 0; column < mask.width(); ++column) {
      kept += mask.at(row, column) != 0 ? 1 : 0;
    }
  }
  return kept / static_cast<double>(mask.rows() * mask.width());
}

TEST_P(RandomKernels, DropoutDropsTheAskedShareAndScalesTheRest) {
  for (const float p : {0.05F, 0.1F, 0.5F, 0.9F}) {
    const Matrix got = mask(keys_of(3, 200), 501, p);
    const double deviation = std::sqrt(p * (1 - p) / (200.0 * 501.0));
    EXPECT_NEAR(kept_share(got), 1 - p, 5 * deviation);
    Matrix factor(dtype(), 1, 1);
    factor.set(0, 0, 1.0F / (1.0F - p));
    for (std::int64_t column = 0; column < 501; ++column) {
      const double value = got.at(0, column);
      ASSERT_TRUE(value == 0 || value == factor.at(0, 0)) << value;
    }
  }
}

TEST_P(RandomKernels, DropoutOfZeroKeepsEverything) {
  EXPECT_EQ(kept_share(mask(keys_of(0, 50), 333, 0)), 1.0);
}

TEST_P(RandomKernels, NeighbouringRowsColumnsSamplesAndSeedsAreIndependent) {
  const float p = 0.5F;
  const Matrix a = mask(keys_of(1, 300), 300, p);
  const Matrix other_sample = mask(keys_of(2, 300), 300, p);
  const Matrix other_seed = mask(keys_of(1, 300), 300, p, 6);
  std::vector<int> agreements(4, 0);
  for (std::int64_t row = 1; row < 300; ++row) {
    for (std::int64_t column = 1; column < 300; ++column) {
      const bool kept = a.at(row, column) != 0;
      agreements[0] += kept == (a.at(row - 1, column) != 0) ? 1 : 0;
      agreements[1] += kept == (a.at(row, column - 1) != 0) ? 1 : 0;
      agreements[2] += kept == (other_sample.at(row, column) != 0) ? 1 : 0;
      agreements[3] += kept == (other_seed.at(row, column) != 0) ? 1 : 0;
    }
  }
  const double count = 299.0 * 299.0;
  for (const int same : agreements) {
    EXPECT_NEAR(same / count, 0.5, 5 * 0.5 / std::sqrt(count));
  }
}

TEST_P(RandomKernels, ColumnsAndRowsOfAMaskDoNotDependOnHowItIsCut) {
  const std::vector<std::uint64_t> keys = keys_of(7, 12);
  const Matrix whole = mask(keys, 97, 0.3F);
  for (const std::int64_t first : {1, 16, 50, 96}) {
    const Matrix tail = mask(keys, 97 - first, 0.3F, 5, first);
    for (std::int64_t row = 0; row < 12; ++row) {
      for (std::int64_t column = 0; column < tail.width(); ++column) {
        ASSERT_EQ(tail.at(row, column), whole.at(row, first + column));
      }
    }
  }
  const Matrix some = mask({keys[9], keys[2]}, 97, 0.3F);
  for (std::int64_t column = 0; column < 97; ++column) {
    ASSERT_EQ(some.at(0, column), whole.at(9, column));
    ASSERT_EQ(some.at(1, column), whole.at(2, column));
  }
}

TEST_P(RandomKernels, DropoutMultipliesItsInputInPlaceOrAdds) {
  const std::vector<std::uint64_t> keys = keys_of(4, 9);
  const float p = 0.4F;
  Numbers numbers(1);
  const Matrix x(dtype(), 9, 41, numbers);
  const Matrix before(dtype(), 9, 41, numbers, 1, 1);
  const Matrix kept = mask(keys, 41, p);
  const double factor = static_cast<double>(1.0F / (1.0F - p));
  Matrix apart(dtype(), 9, 41);
  table().dropout(call(x, apart, keys, p), nullptr);
  EXPECT_EQ(difference(apart, dtype(), 1e-6, 0,
                       [&](std::int64_t row, std::int64_t column) {
                         return kept.at(row, column) != 0 ? x.at(row, column) * factor : 0.0;
                       }),
            "");
  Matrix in_place = x;
  table().dropout(call(in_place, in_place, keys, p), nullptr);
  EXPECT_EQ(in_place, apart);
  Matrix sum = before;
  table().dropout(call(x, sum, keys, p, 5, 0, true), nullptr);
  EXPECT_EQ(difference(sum, dtype(), 1e-6, 1,
                       [&](std::int64_t row, std::int64_t column) {
                         return before.at(row, column) +
                                (kept.at(row, column) != 0 ? x.at(row, column) * factor : 0.0);
                       }),
            "");
}

TEST_P(RandomKernels, DropoutAcceptsNoRowsAndOverflowsToInfinity) {
  Matrix none(dtype(), 0, 7);
  table().dropout(call(none, none, {}, 0.5F), nullptr);
  Matrix large(dtype(), 1, 64);
  for (std::int64_t column = 0; column < 64; ++column) {
    large.set(0, column, 3e38);
  }
  table().dropout(call(large, large, {1}, 0.5F), nullptr);
  for (std::int64_t column = 0; column < 64; ++column) {
    EXPECT_TRUE(large.at(0, column) == 0 || std::isinf(large.at(0, column)));
  }
}

TEST_P(RandomKernels, NoiseIsUniformWithTheMagnitudeOfItsRow) {
  const std::vector<std::uint64_t> keys = keys_of(11, 40);
  std::vector<float> magnitude(40, 0.5F);
  magnitude[3] = 0;
  Matrix x(dtype(), 40, 999);
  table().uniform_noise({.dtype = dtype(),
                         .x = x.data(),
                         .pitch = x.pitch(),
                         .row_keys = keys.data(),
                         .magnitude = magnitude.data(),
                         .seed_key = 8,
                         .rows = 40,
                         .width = 999},
                        nullptr);
  double sum = 0;
  double squares = 0;
  double largest = 0;
  for (std::int64_t row = 0; row < 40; ++row) {
    for (std::int64_t column = 0; column < 999; ++column) {
      const double value = x.at(row, column);
      ASSERT_TRUE(row != 3 || value == 0);
      sum += value;
      squares += value * value;
      largest = std::max(largest, std::abs(value));
    }
  }
  const double count = 39.0 * 999.0;
  EXPECT_NEAR(sum / count, 0, 5 * 0.5 / std::sqrt(3 * count));
  EXPECT_NEAR(squares / count, 0.25 / 3, 0.002);
  EXPECT_GT(largest, 0.499);
  EXPECT_LE(largest, 0.5);
  EXPECT_TRUE(x.padding_is_intact());
}

TEST_P(RandomKernels, NoiseIsAddedAndDoesNotDependOnTheOtherRows) {
  const std::vector<std::uint64_t> keys = keys_of(2, 5);
  const std::vector<float> magnitude = {1, 0.5F, 0.25F, 2, 1};
  Numbers numbers(3);
  const Matrix before(dtype(), 5, 33, numbers);
  const auto noise = [&](Matrix x, std::size_t first) {
    table().uniform_noise({dtype(), x.data(), x.pitch(), keys.data() + first,
                           magnitude.data() + first, 8, x.rows(), x.width()},
                          nullptr);
    return x;
  };
  const Matrix all = noise(before, 0);
  Matrix last_two(dtype(), 2, 33);
  for (std::int64_t column = 0; column < 33; ++column) {
    last_two.set(0, column, before.at(3, column));
    last_two.set(1, column, before.at(4, column));
  }
  const Matrix some = noise(last_two, 3);
  bool changed = false;
  for (std::int64_t column = 0; column < 33; ++column) {
    EXPECT_EQ(some.at(0, column), all.at(3, column));
    EXPECT_EQ(some.at(1, column), all.at(4, column));
    EXPECT_LE(std::abs(all.at(2, column) - before.at(2, column)), 0.26);
    changed = changed || all.at(2, column) != before.at(2, column);
  }
  EXPECT_TRUE(changed);
}

TEST_P(RandomKernels, NanOfTheInputIsKept) {
  Matrix x(dtype(), 1, 3);
  for (std::int64_t column = 0; column < 3; ++column) {
    x.set(0, column, std::numeric_limits<double>::quiet_NaN());
  }
  table().dropout(call(x, x, {1}, 0), nullptr);
  EXPECT_TRUE(std::isnan(x.at(0, 0)) && std::isnan(x.at(0, 2)));
}

/// All builds draw the same masks: a run resumed on another processor goes on with them.
TEST(RandomKernelTables, AgreeOnEveryMask) {
  const std::vector<std::uint64_t> keys = keys_of(9, 30);
  std::vector<Matrix> results;
  for (const NamedTable& table : testing::runnable_tables()) {
    Numbers numbers(4);
    Matrix x(Dtype::kFloat32, 30, 77, numbers);
    table.table.dropout({.dtype = Dtype::kFloat32,
                         .x = x.data(),
                         .x_pitch = x.pitch(),
                         .y = x.data(),
                         .y_pitch = x.pitch(),
                         .row_keys = keys.data(),
                         .seed_key = 1,
                         .rows = 30,
                         .width = 77,
                         .probability = 0.3F},
                        nullptr);
    results.push_back(x);
  }
  for (const Matrix& result : results) {
    EXPECT_EQ(result, results.front());
  }
}

}  // namespace
}  // namespace longhaul::kernels
