// Dropout and uniform noise: element (row, column) is drawn by its counter, never by the thread.
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/row_map.cuh"
#include "kernels/mix.h"

namespace longhaul::kernels::cuda {
namespace {

/// The random bits of N columns from an even one on, or of one column.
template <int N>
__device__ void draw_bits(std::uint64_t row_mix, std::int64_t column, std::uint32_t (&bits)[N]) {
  if constexpr (N == 1) {
    bits[0] = column_bits(pair_word(row_mix, column >> 1), column);
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const std::uint64_t word = pair_word(row_mix, (column + i) >> 1);
      bits[i] = column_bits(word, 0);
      bits[i + 1] = column_bits(word, 1);
    }
  }
}

template <typename T, int N, bool kAdd>
struct DropoutBody {
  struct Values {
    std::uint64_t row_key;
    Vector<T, N> x;
    Vector<T, kAdd ? N : 1> y;
  };
  Dropout a;
  std::uint64_t seed_mix;
  std::uint32_t threshold;  // kept from here on
  float factor;

  __device__ Values load(std::int64_t row, std::uint32_t item) const {
    Values values{};
    const std::int64_t column = std::int64_t{item} * N;
    values.x = load_vector<N>(static_cast<const T*>(a.x) + row * a.x_pitch + column);
    if constexpr (kAdd) {
      values.y = load_vector<N>(static_cast<const T*>(a.y) + row * a.y_pitch + column);
    }
    values.row_key = __ldg(reinterpret_cast<const unsigned long long*>(a.row_keys) + row);
    return values;
  }
  __device__ void finish(std::int64_t row, std::uint32_t item, const Values& in) const {
    const std::uint64_t row_mix = mix(in.row_key ^ seed_mix);
    const std::int64_t column = std::int64_t{item} * N;
    std::uint32_t bits[N];
    draw_bits(row_mix, a.first_column + column, bits);
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      out[i] = bits[i] >= threshold ? in.x[i] * factor : 0.0F;
      if constexpr (kAdd) {
        out[i] += in.y[i];
      }
    }
    store_vector(static_cast<T*>(a.y) + row * a.y_pitch + column, to_vector<T>(out));
  }
};

template <typename T, int N>
struct NoiseBody {
  struct Values {
    std::uint64_t row_key;
    float magnitude;
    Vector<T, N> x;
  };
  UniformNoise a;
  std::uint64_t seed_mix;

  __device__ Values load(std::int64_t row, std::uint32_t item) const {
    return {__ldg(reinterpret_cast<const unsigned long long*>(a.row_keys) + row),
            __ldg(a.magnitude + row),
            load_vector<N>(static_cast<const T*>(a.x) + row * a.pitch + std::int64_t{item} * N)};
  }
  __device__ void finish(std::int64_t row, std::uint32_t item, const Values& in) const {
    const std::uint64_t row_mix = mix(in.row_key ^ seed_mix);
    const std::int64_t column = std::int64_t{item} * N;
    std::uint32_t bits[N];
    draw_bits(row_mix, column, bits);
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float unit = static_cast<float>(bits[i]) * 0x1.0p-23F - 1.0F;
      out[i] = fmaf(unit, in.magnitude, in.x[i]);
    }
    store_vector(static_cast<T*>(a.x) + row * a.pitch + column, to_vector<T>(out));
  }
};

template <typename T, bool kAdd>
void run_dropout(const Dropout& a, Stream stream) {
  const std::uint64_t seed_mix = mix(a.seed_key);
  const std::uint32_t threshold = first_kept(a.probability);
  const float factor = 1.0F / (1.0F - a.probability);
  constexpr int N = kPack<T>;
  const bool whole_pairs = a.first_column % 2 == 0;
  if (whole_pairs && a.width % N == 0 &&
      rows_aligned({{a.x, a.x_pitch}, {a.y, a.y_pitch}}, a.rows, sizeof(T))) {
    map_rows<2>("dropout", DropoutBody<T, N, kAdd>{a, seed_mix, threshold, factor}, a.rows,
                a.width / N, stream);
  } else {
    map_rows<4>("dropout", DropoutBody<T, 1, kAdd>{a, seed_mix, threshold, factor}, a.rows, a.width,
                stream);
  }
}

}  // namespace

void dropout(const Dropout& a, Stream stream) {
  LONGHAUL_ASSERT(a.probability >= 0.0F && a.probability <= 1.0F, "a probability is in [0, 1]");
  dispatch(a.dtype, [&](auto tag) {
    if (a.add) {
      run_dropout<decltype(tag), true>(a, stream);
    } else {
      run_dropout<decltype(tag), false>(a, stream);
    }
  });
}

void uniform_noise(const UniformNoise& a, Stream stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::uint64_t seed_mix = mix(a.seed_key);
    if (a.width % kPack<T> == 0 && rows_aligned({{a.x, a.pitch}}, a.rows, sizeof(T))) {
      map_rows<2>("uniform_noise", NoiseBody<T, kPack<T>>{a, seed_mix}, a.rows, a.width / kPack<T>,
                  stream);
    } else {
      map_rows<4>("uniform_noise", NoiseBody<T, 1>{a, seed_mix}, a.rows, a.width, stream);
    }
  });
}

}  // namespace longhaul::kernels::cuda
