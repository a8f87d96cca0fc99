// Elements in memory (fp32 or bf16) and in registers (fp32): vectors of up to 16 bytes, loads and
// stores of whole or partial ones, and the exponentials.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace longhaul::kernels::cuda {

/// bfloat16 storage; arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits;
};

/// Elements of 16 bytes, the widest access of a thread.
template <typename T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// N elements as they lie in memory; indices must be known when compiled (unrolled loops), or the
/// words leave the registers.
template <typename T, int N>
struct Vector {
  static constexpr int kBytes = N * static_cast<int>(sizeof(T));
  std::uint32_t words[(kBytes + 3) / 4];

  __device__ float operator[](int i) const {
    if constexpr (std::is_same_v<T, float>) {
      return __uint_as_float(words[i]);
    } else {
      return __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xFFFF0000U);
    }
  }
  /// The element itself, not converted.
  __device__ T element(int i) const {
    if constexpr (std::is_same_v<T, float>) {
      return __uint_as_float(words[i]);
    } else {
      return {static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16))};
    }
  }
  __device__ void set(int i, float value) {
    if constexpr (std::is_same_v<T, float>) {
      words[i] = __float_as_uint(value);
    } else {
      set(i, BFloat16{__bfloat16_as_ushort(__float2bfloat16_rn(value))});
    }
  }
  __device__ void set(int i, BFloat16 value) {
    const std::uint32_t other = i % 2 == 0 ? 0xFFFF0000U : 0x0000FFFFU;
    words[i / 2] = (words[i / 2] & other) | static_cast<std::uint32_t>(value.bits) << (i % 2 * 16);
  }
};

/// Rounds N floats to the element type.
template <typename T, int N>
__device__ Vector<T, N> to_vector(const float (&values)[N]) {
  Vector<T, N> result{};
  if constexpr (std::is_same_v<T, float> || N == 1) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      result.set(i, values[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[i], values[i + 1]);
      result.words[i / 2] = static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.x)) |
                            static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16;
    }
  }
  return result;
}

/// The plain type with the size of a vector: one access of memory.
template <int kBytes>
using Word = std::conditional_t<
    kBytes == 16, uint4,
    std::conditional_t<kBytes == 8, uint2,
                       std::conditional_t<kBytes == 4, std::uint32_t, std::uint16_t>>>;

/// What a kernel promises about memory that it loads. kConstant memory is written by nobody during
/// the launch, so its loads may move above stores.
enum class Memory { kMutable, kConstant };

/// One access; `from` lies on a border of the vector's size.
template <int N, Memory kMemory = Memory::kMutable, typename T>
__device__ Vector<T, N> load_vector(const T* from) {
  using W = Word<Vector<T, N>::kBytes>;
  const W* place = reinterpret_cast<const W*>(from);
  W word;
  if constexpr (kMemory == Memory::kConstant) {
    word = __ldg(place);
  } else {
    word = *place;
  }
  Vector<T, N> result;
  if constexpr (sizeof(W) == 16) {
    result.words[0] = word.x;
    result.words[1] = word.y;
    result.words[2] = word.z;
    result.words[3] = word.w;
  } else if constexpr (sizeof(W) == 8) {
    result.words[0] = word.x;
    result.words[1] = word.y;
  } else {
    result.words[0] = word;
  }
  return result;
}

/// One access; `to` lies on a border of the vector's size. Through an intrinsic, because a plain
/// assignment of 16 bytes may be compiled to four stores.
template <typename T, int N>
__device__ void store_vector(T* to, const Vector<T, N>& vector) {
  using W = Word<Vector<T, N>::kBytes>;
  W* place = reinterpret_cast<W*>(to);
  if constexpr (sizeof(W) == 16) {
    __stwb(place, make_uint4(vector.words[0], vector.words[1], vector.words[2], vector.words[3]));
  } else if constexpr (sizeof(W) == 8) {
    __stwb(place, make_uint2(vector.words[0], vector.words[1]));
  } else {
    *place = static_cast<W>(vector.words[0]);
  }
}

/// The first `valid` of 16 bytes' elements, the others `fill`. With kWhole a vector lies on its
/// border and is valid as a whole or not at all: one access. Otherwise it is read element by
/// element: which thread holds which element, and so the order of every sum, is the same either way.
template <bool kWhole, Memory kMemory = Memory::kMutable, typename T>
__device__ Vector<T, kPack<T>> load_part(const T* from, int valid, float fill = 0.0F) {
  Vector<T, kPack<T>> result{};
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) {
    result.set(i, fill);
  }
  if constexpr (kWhole) {
    if (valid > 0) {
      result = load_vector<kPack<T>, kMemory>(from);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (i < valid) {
        result.set(i, from[i]);
      }
    }
  }
  return result;
}

/// Stores the first `valid` elements; kWhole as above.
template <bool kWhole, typename T>
__device__ void store_part(T* to, int valid, const Vector<T, kPack<T>>& vector) {
  if constexpr (kWhole) {
    if (valid > 0) {
      store_vector(to, vector);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (i < valid) {
        to[i] = vector.element(i);
      }
    }
  }
}

/// As load_part for N fp32 values, a multiple of 4 with kWhole; those beyond `valid` are 0.
template <bool kWhole, Memory kMemory = Memory::kMutable, int N>
__device__ void load_floats(const float* from, std::int64_t valid, float (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    to[i] = 0.0F;
  }
  if constexpr (kWhole) {
    static_assert(N % 4 == 0);
    if (valid > 0) {
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        const Vector<float, 4> four = load_vector<4, kMemory>(from + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          to[i + j] = four[j];
        }
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < valid) {
        to[i] = from[i];
      }
    }
  }
}

/// The opposite of load_floats.
template <bool kWhole, int N>
__device__ void store_floats(float* to, std::int64_t valid, const float (&values)[N]) {
  if constexpr (kWhole) {
    static_assert(N % 4 == 0);
    if (valid > 0) {
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        store_vector(to + i,
                     to_vector<float, 4>({values[i], values[i + 1], values[i + 2], values[i + 3]}));
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < valid) {
        to[i] = values[i];
      }
    }
  }
}

/// 2ˣ by the special function unit, within 2 units of 2⁻²²; results below 2⁻¹²⁶ are 0.
__device__ inline float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// 1 / x by the special function unit, within 1 unit in the last place.
__device__ inline float fast_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// eˣ as good as the element type deserves: 2 units in the last place of fp32; for bf16 an error
/// of (|x| + 2) · 2⁻²³, far below its rounding, at a third of the instructions.
template <typename T>
__device__ float exponential(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return fast_exp2(x * 1.44269504F);
  }
}

}  // namespace longhaul::kernels::cuda
