#include "base/dtype.h"

#include <array>

#include "base/error.h"

namespace longhaul::base {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::size_t bytes;
  std::string_view safetensors;
  std::string_view name;
};

constexpr std::array<DtypeRow, 10> kRows = {{
    {Dtype::kFloat32, 4, "F32", "float32"},
    {Dtype::kFloat16, 2, "F16", "float16"},
    {Dtype::kBFloat16, 2, "BF16", "bfloat16"},
    {Dtype::kFloat64, 8, "F64", "float64"},
    {Dtype::kInt64, 8, "I64", "int64"},
    {Dtype::kInt32, 4, "I32", "int32"},
    {Dtype::kInt16, 2, "I16", "int16"},
    {Dtype::kInt8, 1, "I8", "int8"},
    {Dtype::kUInt8, 1, "U8", "uint8"},
    {Dtype::kBool, 1, "BOOL", "bool"},
}};

const DtypeRow& row_of(Dtype dtype) {
  for (const DtypeRow& row : kRows) {
    if (row.dtype == dtype) {
      return row;
    }
  }
  LONGHAUL_ASSERT(false, "every element type has a row");
  return kRows[0];
}

}  // namespace

std::size_t dtype_bytes(Dtype dtype) { return row_of(dtype).bytes; }
std::string_view safetensors_name(Dtype dtype) { return row_of(dtype).safetensors; }
std::string_view dtype_name(Dtype dtype) { return row_of(dtype).name; }

std::optional<Dtype> dtype_from_safetensors(std::string_view name) {
  for (const DtypeRow& row : kRows) {
    if (row.safetensors == name) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeRow& row : kRows) {
    if (row.name == name) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);  // NaN stays NaN, made quiet
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

float f16_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  std::uint32_t exponent = (half >> 10) & 0x1FU;
  std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0x1F) {
    return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  }
  if (exponent == 0) {
    const float magnitude =
        static_cast<float>(mantissa) * 0x1.0p-24F;  // zero and subnormals, exact
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<std::uint16_t>(sign | 0x7E00U);
  }
  if (magnitude >= 0x477FF000U) {  // rounds to or beyond 65536
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < 0x38800000U) {  // subnormal half: let float addition round to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    const std::uint32_t low =
        std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
    return static_cast<std::uint16_t>(sign | low);
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

}  // namespace longhaul::base
