// The division by multiplication, and the cut of rows into launches; both run on the host.
#include <gtest/gtest.h>

#include <cstdint>

#include "kernels/cuda/fast_divide.h"

namespace longhaul::kernels::cuda {
namespace {

TEST(FastDivide, EqualsDivisionAtTheBordersOfEveryQuotient) {
  constexpr std::uint32_t kLargest = (std::uint32_t{1} << 31) - 1;
  for (const std::uint32_t divisor : {1U, 2U, 3U, 5U, 7U, 8U, 9U, 36U, 448U, 2368U, 18944U, 65537U,
                                      (1U << 30) - 1, 1U << 30, (1U << 30) + 1, kLargest}) {
    const FastDivide divide(divisor);
    const auto check = [&](std::uint64_t n) {
      if (n <= kLargest) {
        const auto number = static_cast<std::uint32_t>(n);
        ASSERT_EQ(divide.quotient(number), number / divisor) << number << " / " << divisor;
      }
    };
    const std::uint64_t quotients = kLargest / divisor;
    const std::uint64_t step = quotients / 1000 + 1;
    for (std::uint64_t q = 0; q <= quotients; q += step) {
      check(q * divisor);
      check(q * divisor + divisor - 1);
    }
    check(quotients * divisor);
    check(quotients * divisor - 1);
    check(kLargest);
  }
}

TEST(RowsPerLaunch, FitTheItemsOfOneLaunch) {
  for (const std::int64_t per_row : {1, 3, 448, 152064}) {
    EXPECT_LE(rows_per_launch(per_row) * per_row, kMaxItems);
    EXPECT_GT((rows_per_launch(per_row) + 1) * per_row, kMaxItems);
  }
}

}  // namespace
}  // namespace longhaul::kernels::cuda
