// Element types of tensor files and weights, and the 16-bit float conversions (round to nearest
// even).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace longhaul::base {

enum class Dtype {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat64,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool
};

/// Bytes per element.
std::size_t dtype_bytes(Dtype dtype);
/// safetensors' name: F32 F16 BF16 F64 I64 I32 I16 I8 U8 BOOL.
std::string_view safetensors_name(Dtype dtype);
std::optional<Dtype> dtype_from_safetensors(std::string_view name);
/// Name as in config.json and `--torch_dtype`: float32 float16 bfloat16 …
std::string_view dtype_name(Dtype dtype);
std::optional<Dtype> dtype_from_name(std::string_view name);

inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
std::uint16_t float_to_bf16(float value);
float f16_to_float(std::uint16_t half);
std::uint16_t float_to_f16(float value);

}  // namespace longhaul::base
