// Conversions against the definition of the formats: a half is the value its bits spell, and a
// float rounds to the nearest half, ties to the one with an even last bit. (Compared with PyTorch
// in safetensors_oracle.py.)
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/rng.h"

namespace longhaul::base {
namespace {

float bits_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Dtype, NamesReadBackAsTheSameType) {
  for (const Dtype dtype :
       {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat64, Dtype::kInt64,
        Dtype::kInt32, Dtype::kInt16, Dtype::kInt8, Dtype::kUInt8, Dtype::kBool}) {
    EXPECT_EQ(dtype_from_safetensors(safetensors_name(dtype)), dtype);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_safetensors("F8_E4M3"), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors("f32"), std::nullopt);
  EXPECT_EQ(dtype_from_name("float8"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(Dtype, HasTheByteSizesOfSafetensors) {
  EXPECT_EQ(dtype_bytes(Dtype::kFloat64), 8U);
  EXPECT_EQ(dtype_bytes(Dtype::kInt64), 8U);
  EXPECT_EQ(dtype_bytes(Dtype::kFloat32), 4U);
  EXPECT_EQ(dtype_bytes(Dtype::kInt32), 4U);
  EXPECT_EQ(dtype_bytes(Dtype::kBFloat16), 2U);
  EXPECT_EQ(dtype_bytes(Dtype::kFloat16), 2U);
  EXPECT_EQ(dtype_bytes(Dtype::kInt16), 2U);
  EXPECT_EQ(dtype_bytes(Dtype::kInt8), 1U);
  EXPECT_EQ(dtype_bytes(Dtype::kUInt8), 1U);
  EXPECT_EQ(dtype_bytes(Dtype::kBool), 1U);
}

/// What IEEE binary16 says that `bits` means.
double half_value(std::uint32_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((bits >> 10) & 31U);
  const double mantissa = bits & 1023U;
  return exponent == 0 ? sign * std::ldexp(mantissa, -24)
                       : sign * std::ldexp(1024.0 + mantissa, exponent - 25);
}

bool half_is_finite(std::uint32_t bits) { return (bits & 0x7C00U) != 0x7C00U; }

TEST(Float16, EveryOneOfThe65536PatternsDecodesToItsDefinition) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_float(static_cast<std::uint16_t>(bits));
    if (half_is_finite(bits)) {
      ASSERT_EQ(static_cast<double>(value), half_value(bits)) << bits;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000U) != 0) << bits;
    } else if ((bits & 0x3FFU) == 0) {
      ASSERT_TRUE(std::isinf(value)) << bits;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000U) != 0) << bits;
    } else {
      ASSERT_TRUE(std::isnan(value)) << bits;
    }
  }
}

TEST(Float16, EveryPatternSurvivesTheWayToFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const std::uint16_t back = float_to_f16(f16_to_float(static_cast<std::uint16_t>(bits)));
    if (half_is_finite(bits) || (bits & 0x3FFU) == 0) {
      ASSERT_EQ(back, bits);
    } else {
      ASSERT_TRUE(std::isnan(f16_to_float(back))) << bits;
    }
  }
}

TEST(Float16, RoundsToNearestWithTiesToEvenBetweenAllNeighbours) {
  for (std::uint32_t low = 0; low < 0x7BFF; ++low) {
    const std::uint32_t high = low + 1;
    // A float holds the exact middle of two neighbouring halves.
    const auto middle = static_cast<float>((half_value(low) + half_value(high)) / 2);
    const float below = std::nextafter(middle, 0.0F);
    const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    const std::uint32_t even = (low & 1U) == 0 ? low : high;
    ASSERT_EQ(float_to_f16(middle), even) << low;
    ASSERT_EQ(float_to_f16(below), low) << low;
    ASSERT_EQ(float_to_f16(above), high) << low;
    ASSERT_EQ(float_to_f16(-middle), even | 0x8000U) << low;
    ASSERT_EQ(float_to_f16(-below), low | 0x8000U) << low;
    ASSERT_EQ(float_to_f16(-above), high | 0x8000U) << low;
  }
}

TEST(Float16, OverflowsToInfinityFromHalfAStepAboveTheLargestValue) {
  EXPECT_EQ(float_to_f16(65504.0F), 0x7BFF);
  EXPECT_EQ(float_to_f16(std::nextafter(65520.0F, 0.0F)), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_f16(-1e30F), 0xFC00);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_f16(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(BFloat16, EveryPatternIsTheUpperHalfOfAFloatAndSurvivesTheWayBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value)))) << bits;
    } else {
      ASSERT_EQ(float_to_bf16(value), bits);
    }
  }
}

TEST(BFloat16, RoundsToNearestWithTiesToEvenBetweenAllNeighbours) {
  for (std::uint32_t low = 0; low < 0x7F80; ++low) {  // the last upper neighbour is infinity
    const std::uint32_t middle = (low << 16) | 0x8000U;
    const std::uint32_t even = (low & 1U) == 0 ? low : low + 1;
    ASSERT_EQ(float_to_bf16(bits_to_float(middle)), even) << low;
    ASSERT_EQ(float_to_bf16(bits_to_float(middle - 1)), low) << low;
    ASSERT_EQ(float_to_bf16(bits_to_float(middle + 1)), low + 1) << low;
    ASSERT_EQ(float_to_bf16(bits_to_float(middle | 0x80000000U)), even | 0x8000U) << low;
  }
}

TEST(BFloat16, KeepsNanWhosePayloadLiesInTheLostBits) {
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(bits_to_float(0x7F800001U)))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(bits_to_float(0xFFFFFFFFU)))));
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(bits_to_float(0x7F800001U)))));
}

TEST(HalfFormats, RoundRandomFloatsToTheNearestValue) {
  const CounterRng rng(7, RngPurpose::kSampling);
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const float value = bits_to_float(rng.words(i)[0]);
    if (!std::isfinite(value)) {
      continue;
    }
    const std::uint16_t half = float_to_f16(value);
    if (half_is_finite(half) && (half & 0x7FFFU) != 0 && half_is_finite(half + 1U)) {
      const double error = std::abs(half_value(half) - static_cast<double>(value));
      ASSERT_LE(error, std::abs(half_value(half + 1U) - static_cast<double>(value)));
      ASSERT_LE(error, std::abs(half_value(half - 1U) - static_cast<double>(value)));
    }
  }
}

}  // namespace
}  // namespace longhaul::base
