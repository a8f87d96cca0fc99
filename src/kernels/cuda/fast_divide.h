// Division of item numbers by a divisor that a whole launch shares: one multiplication and one
// shift. Source: Granlund, Montgomery, "Division by invariant integers using multiplication".
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace longhaul::kernels::cuda {

/// Items of one launch: below the 2³¹ that FastDivide takes, and far enough that the sum of an item
/// number and a grid stride stays in 32 bits.
inline constexpr std::int64_t kMaxItems = std::int64_t{1} << 30;

/// Rows of one launch when each has `per_row` items; at least one.
constexpr std::int64_t rows_per_launch(std::int64_t per_row) {
  return std::max<std::int64_t>(kMaxItems / per_row, 1);
}

/// n / divisor for n < 2³¹ and 1 ≤ divisor < 2³¹. With p = 31 + ⌈log₂ divisor⌉ and the multiplier
/// ⌈2ᵖ / divisor⌉, the error of n · multiplier / 2ᵖ stays below 1 / divisor.
class FastDivide {
 public:
  constexpr explicit FastDivide(std::uint32_t divisor) : divisor_(divisor) {
    if (divisor > 1) {
      const int power = 31 + std::bit_width(divisor - 1);
      multiplier_ =
          static_cast<std::uint32_t>(((std::uint64_t{1} << power) + divisor - 1) / divisor);
      shift_ = static_cast<std::uint32_t>(power - 32);
    }
  }
  [[nodiscard]] constexpr std::uint32_t quotient(std::uint32_t n) const {
    const std::uint64_t product = static_cast<std::uint64_t>(n) * multiplier_;
    return divisor_ == 1 ? n : static_cast<std::uint32_t>(product >> 32) >> shift_;
  }
  [[nodiscard]] constexpr std::uint32_t divisor() const { return divisor_; }

 private:
  std::uint32_t divisor_;
  std::uint32_t multiplier_ = 0;
  std::uint32_t shift_ = 0;
};

}  // namespace longhaul::kernels::cuda
