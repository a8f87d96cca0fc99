// Small pieces shared by the CPU kernels: element access in fp32 or bf16, and an exponential that
// the compiler can vectorise. Included only by cpu_*.inc.cpp builds, inside their instruction-set
// namespace.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace longhaul::kernels::LONGHAUL_ISA {

/// bfloat16 storage; arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits;
};

inline float load(float value) { return value; }
inline float load(BFloat16 value) { return base::bf16_to_float(value.bits); }
inline void store(float& target, float value) { target = value; }
inline void store(BFloat16& target, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  target.bits = static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded);
}

/// e^x within 2 ulp for finite results; below −87.3 it returns a value ≤ 2⁻¹²⁵, above 88.7
/// infinity. Range reduction by ln 2 in two parts and a degree-6 polynomial (minimax on ±ln2/2).
inline float vector_exp(float x) {
  const float clamped = x < -87.33F ? -87.33F : (x > 88.72F ? 88.72F : x);
  const float shifted = clamped * 1.44269504F + 12582912.0F;  // 1.5·2²³ rounds to an integer
  const float n = shifted - 12582912.0F;
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float e = (p * r * r + r) + 1.0F;
  // Two half-steps of the exponent, so that 2ⁿ never overflows the field on its own.
  const auto whole = static_cast<std::int32_t>(n);
  const std::int32_t half = whole >> 1;
  const float scale1 = std::bit_cast<float>((half + 127) << 23);
  const float scale2 = std::bit_cast<float>((whole - half + 127) << 23);
  const float value = e * scale1 * scale2;
  return x > 88.72F ? (value * 2.0F) * 0x1.0p127F : value;
}

}  // namespace longhaul::kernels::LONGHAUL_ISA
