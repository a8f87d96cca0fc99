// CPU kernels, built once per instruction set (LONGHAUL_ISA names the namespace). Rows are spread
// over the OpenMP threads; every reduction inside a row has a fixed order for a given instruction
// set.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/cpu_vector.h"
#include "kernels/kernel_table.h"
#include "kernels/mix.h"
#include "kernels/stochastic_round.h"

namespace longhaul::kernels::LONGHAUL_ISA {

KernelTable make_table();

namespace {

template <typename T>
const T* row_of(const void* base, std::int64_t row, std::int64_t pitch) {
  return static_cast<const T*>(base) + row * pitch;
}
template <typename T>
T* row_of(void* base, std::int64_t row, std::int64_t pitch) {
  return static_cast<T*>(base) + row * pitch;
}

/// Calls `run.template operator()<T>()` with the element type of `dtype`.
template <typename Run>
void dispatch(base::Dtype dtype, const Run& run) {
  if (dtype == base::Dtype::kBFloat16) {
    run(BFloat16{});
  } else {
    run(float{});
  }
}

void rms_norm_forward(const RmsNormForward& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto* weight = static_cast<const T*>(a.weight);
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < a.rows; ++row) {
      for (std::int64_t group = 0; group < a.groups; ++group) {
        const T* x = row_of<T>(a.x, row, a.x_pitch) + group * a.width;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = 0; i < a.width; ++i) {
          sum += load(x[i]) * load(x[i]);
        }
        const float rstd = 1.0F / std::sqrt(sum / static_cast<float>(a.width) + a.eps);
        a.rstd[row * a.groups + group] = rstd;
        if (a.y == nullptr) {
          continue;
        }
        T* y = row_of<T>(a.y, row, a.y_pitch) + group * a.width;
#pragma omp simd
        for (std::int64_t i = 0; i < a.width; ++i) {
          store(y[i], load(x[i]) * rstd * load(weight[i]));
        }
      }
    }
  });
}

template <typename T>
void rms_norm_backward_row(const RmsNormBackward& a, std::int64_t row, std::int64_t group,
                           float* dweight) {
  const auto* weight = static_cast<const T*>(a.weight);
  const std::int64_t at = group * a.width;
  const T* x = row_of<T>(a.x, row, a.x_pitch) + at;
  const T* dy = row_of<T>(a.dy, row, a.dy_pitch) + at;
  const T* add = a.add == nullptr ? nullptr : row_of<T>(a.add, row, a.add_pitch) + at;
  T* dx = row_of<T>(a.dx, row, a.dx_pitch) + at;
  const float rstd = a.rstd[row * a.groups + group];
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t i = 0; i < a.width; ++i) {
    dot += load(dy[i]) * load(weight[i]) * load(x[i]);
  }
  const float mean = dot * rstd * rstd / static_cast<float>(a.width);
  if (dweight != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < a.width; ++i) {
      dweight[i] += load(dy[i]) * load(x[i]) * rstd;
    }
  }
  for (std::int64_t i = 0; i < a.width; ++i) {
    const float value = rstd * (load(dy[i]) * load(weight[i]) - load(x[i]) * mean);
    store(dx[i], add == nullptr ? value : value + load(add[i]));
  }
}

/// Rows are cut into a fixed number of blocks so that dweight does not depend on the thread count.
constexpr std::int64_t kReductionBlocks = 32;

void rms_norm_backward(const RmsNormBackward& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool wants_weight = a.dweight != nullptr;
    const auto width = static_cast<std::size_t>(a.width);
    std::vector<float> partial(wants_weight ? width * kReductionBlocks : 0, 0.0F);
#pragma omp parallel for schedule(static)
    for (std::int64_t block = 0; block < kReductionBlocks; ++block) {
      float* dweight = wants_weight ? partial.data() + block * a.width : nullptr;
      const std::int64_t end = a.rows * (block + 1) / kReductionBlocks;
      for (std::int64_t row = a.rows * block / kReductionBlocks; row < end; ++row) {
        for (std::int64_t group = 0; group < a.groups; ++group) {
          rms_norm_backward_row<T>(a, row, group, dweight);
        }
      }
    }
    for (std::int64_t block = 0; wants_weight && block < kReductionBlocks; ++block) {
      for (std::int64_t i = 0; i < a.width; ++i) {
        a.dweight[i] += partial[static_cast<std::size_t>(block * a.width + i)];
      }
    }
  });
}

/// Cosines and sines of one row's head_dim/2 angles; `sign` −1 turns back.
struct RowAngles {
  const float* cosine;
  const float* sine;
  std::int64_t half;
  float sign;
};

/// Turns the heads of one row; `to` may be `from`. Never inlined, so that rope and copy_heads run the
/// same instructions: the compiler chooses once which product joins a sum unrounded, and the bits
/// are equal.
template <typename T>
[[gnu::noinline]] void rotate_heads(const T* from, T* to, std::int64_t heads,
                                    const RowAngles& angles) {
  const float* cosine = angles.cosine;
  const float* sine = angles.sine;
  const std::int64_t half = angles.half;
  const float sign = angles.sign;
  for (std::int64_t head = 0; head < heads; ++head) {
    const T* from_low = from + head * 2 * half;
    const T* from_high = from_low + half;
    T* to_low = to + head * 2 * half;
    T* to_high = to_low + half;
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) {
      const float x1 = load(from_low[i]);
      const float x2 = load(from_high[i]);
      store(to_low[i], x1 * cosine[i] - sign * x2 * sine[i]);
      store(to_high[i], x2 * cosine[i] + sign * x1 * sine[i]);
    }
  }
}

void rope(const Rope& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t half = a.head_dim / 2;
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < a.rows; ++row) {
      T* x = row_of<T>(a.x, row, a.pitch);
      rotate_heads(x, x, a.heads,
                   {a.cosine + row * half, a.sine + row * half, half, a.inverse ? -1.0F : 1.0F});
    }
  });
}

void copy_heads(const CopyHeads& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::int64_t half = a.head_dim / 2;
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < a.rows; ++row) {
      for (std::int64_t i = 0; i < a.num_segments; ++i) {
        const HeadSegment& segment = a.segments[i];
        const T* from = row_of<T>(segment.from, row, segment.from_pitch);
        T* to = row_of<T>(segment.to, row, segment.to_pitch);
        if (segment.rotated) {
          rotate_heads(
              from, to, segment.columns / a.head_dim,
              {a.cosine + row * half, a.sine + row * half, half, a.inverse ? -1.0F : 1.0F});
        } else if (segment.columns > 0) {
          std::memcpy(to, from, static_cast<std::size_t>(segment.columns) * sizeof(T));
        }
      }
    }
  });
}

void scaled_copies(const ScaledCopies& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    // One team for all segments: they are small, and none waits for another.
#pragma omp parallel
    for (std::int64_t i = 0; i < a.num_segments; ++i) {
      const ScaledSegment& segment = a.segments[i];
      const float scale = segment.scale;
#pragma omp for schedule(static) nowait
      for (std::int64_t row = 0; row < segment.rows; ++row) {
        const float* from = segment.from + row * segment.from_pitch;
        T* to = row_of<T>(segment.to, row, segment.to_pitch);
#pragma omp simd
        for (std::int64_t column = 0; column < segment.columns; ++column) {
          store(to[column], from[column] * scale);
        }
      }
    }
  });
}

void swiglu_forward(const SwigluForward& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const T* gate = row_of<T>(a.gate_up, row, a.gate_up_pitch);
      const T* up = gate + a.width;
      T* out = row_of<T>(a.out, row, a.out_pitch);
#pragma omp simd
      for (std::int64_t i = 0; i < a.width; ++i) {
        const float g = load(gate[i]);
        store(out[i], g / (1.0F + vector_exp(-g)) * load(up[i]));
      }
    }
  });
}

template <typename T, bool kOut>
void swiglu_backward_row(const SwigluBackward& a, std::int64_t row) {
  const T* gate = row_of<T>(a.gate_up, row, a.gate_up_pitch);
  const T* up = gate + a.width;
  const T* dout = row_of<T>(a.dout, row, a.dout_pitch);
  T* dgate = row_of<T>(a.dgate_up, row, a.dgate_up_pitch);
  T* dup = dgate + a.width;
  T* out = kOut ? row_of<T>(a.out, row, a.out_pitch) : nullptr;
#pragma omp simd
  for (std::int64_t i = 0; i < a.width; ++i) {
    const float g = load(gate[i]);
    const float u = load(up[i]);
    const float d = load(dout[i]);
    const float divisor = 1.0F + vector_exp(-g);
    const float sigmoid = 1.0F / divisor;
    const float silu = g * sigmoid;
    store(dgate[i], d * u * (sigmoid + silu * (1.0F - sigmoid)));
    store(dup[i], d * silu);
    if constexpr (kOut) {
      store(out[i], g / divisor * u);
    }
  }
}

void swiglu_backward(const SwigluBackward& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto run =
        a.out == nullptr ? swiglu_backward_row<T, false> : swiglu_backward_row<T, true>;
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < a.rows; ++row) {
      run(a, row);
    }
  });
}

template <typename T>
void cross_entropy_row(const CrossEntropy& a, std::int64_t row) {
  T* logits = row_of<T>(a.logits, row, a.pitch);
  const std::int64_t label = a.labels[row];
  float largest = load(logits[0]);
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < a.vocab; ++i) {
    largest = std::max(largest, load(logits[i]));
  }
  const float at_label = load(logits[label]);
  // Arg-max is the label exactly when no earlier entry ties with it.
  bool correct = at_label == largest;
  for (std::int64_t i = 0; correct && i < label; ++i) {
    correct = load(logits[i]) < largest;
  }
  double total = 0;
  for (std::int64_t begin = 0; begin < a.vocab; begin += 512) {
    const std::int64_t end = std::min(begin + 512, a.vocab);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = begin; i < end; ++i) {
      sum += vector_exp(load(logits[i]) - largest);
    }
    total += static_cast<double>(sum);
  }
  a.row_loss[row] = std::log(total) + static_cast<double>(largest) - static_cast<double>(at_label);
  a.correct[row] = correct ? 1 : 0;
  if (a.gradient_scale == 0.0F) {
    return;
  }
  const float factor = static_cast<float>(1.0 / total) * a.gradient_scale;
#pragma omp simd
  for (std::int64_t i = 0; i < a.vocab; ++i) {
    store(logits[i], vector_exp(load(logits[i]) - largest) * factor);
  }
  // p − 1 in double: the exponential above would round p before the subtraction.
  const double p = std::exp(static_cast<double>(at_label) - static_cast<double>(largest)) / total;
  store(logits[label], static_cast<float>((p - 1.0) * static_cast<double>(a.gradient_scale)));
}

void cross_entropy(const CrossEntropy& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < a.rows; ++row) {
      cross_entropy_row<decltype(tag)>(a, row);
    }
  });
}

/// fp32 moments are stored as they are, and draw nothing.
struct ExactMoments {
  using Element = float;
  explicit ExactMoments(const AdamW&) {}
  void store(float* m_out, float* v_out, std::int64_t i, float m, float v) const {
    m_out[i] = m;
    v_out[i] = v;
  }
};

struct RoundedMoments {
  using Element = BFloat16;
  explicit RoundedMoments(const AdamW& a) : key(a.rounding_key), first(a.first_element) {}
  void store(BFloat16* m_out, BFloat16* v_out, std::int64_t i, float m, float v) const {
    const std::uint32_t random = rounding_bits(key, first + i);
    m_out[i].bits = round_stochastically(std::bit_cast<std::uint32_t>(m), random >> 16);
    v_out[i].bits = round_stochastically(std::bit_cast<std::uint32_t>(v), random);
  }
  std::uint64_t key;
  std::int64_t first;
};

template <typename Moments>
void update_weights(const AdamW& a) {
  using Element = typename Moments::Element;
  auto* exp_avg = static_cast<Element*>(a.exp_avg);
  auto* exp_avg_sq = static_cast<Element*>(a.exp_avg_sq);
  const Moments moments(a);
  const auto beta1 = static_cast<float>(a.beta1);
  const auto one_minus_beta1 = static_cast<float>(1.0 - a.beta1);
  const auto beta2 = static_cast<float>(a.beta2);
  const auto one_minus_beta2 = static_cast<float>(1.0 - a.beta2);
  const auto keep = static_cast<float>(1.0 - a.learning_rate * a.weight_decay);
  const auto step = static_cast<float>(a.learning_rate / a.bias_correction1);
  const auto root_correction = static_cast<float>(std::sqrt(a.bias_correction2));
  const auto epsilon = static_cast<float>(a.epsilon);
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < a.count; ++i) {
    const float gradient = a.gradient[i] * a.gradient_factor;
    const float m = load(exp_avg[i]) * beta1 + gradient * one_minus_beta1;
    const float v = load(exp_avg_sq[i]) * beta2 + gradient * gradient * one_minus_beta2;
    moments.store(exp_avg, exp_avg_sq, i, m, v);
    const float denominator = std::sqrt(v) / root_correction + epsilon;
    a.weight[i] = a.weight[i] * keep - step * m / denominator;
  }
}

void adamw(const AdamW& a, Stream) {
  if (a.moment_dtype == base::Dtype::kBFloat16) {
    update_weights<RoundedMoments>(a);
  } else {
    update_weights<ExactMoments>(a);
  }
  if (a.copy != nullptr) {
    dispatch(a.copy_dtype, [&](auto tag) {
      using T = decltype(tag);
      auto* copy = static_cast<T*>(a.copy);
#pragma omp parallel for simd schedule(static)
      for (std::int64_t i = 0; i < a.count; ++i) {
        store(copy[i], a.weight[i]);
      }
    });
  }
}

/// 24 random bits for (seed, row, column).
inline std::uint32_t counter_bits(std::uint64_t row_mix, std::int64_t column) {
  return column_bits(pair_word(row_mix, column >> 1), column);
}

void dropout(const Dropout& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const std::uint32_t first = first_kept(a.probability);
    const float factor = 1.0F / (1.0F - a.probability);
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const std::uint64_t row_mix = mix(a.row_keys[row] ^ mix(a.seed_key));
      const T* x = row_of<T>(a.x, row, a.x_pitch);
      T* y = row_of<T>(a.y, row, a.y_pitch);
      for (std::int64_t i = 0; i < a.width; ++i) {
        const bool kept = counter_bits(row_mix, a.first_column + i) >= first;
        const float value = kept ? load(x[i]) * factor : 0.0F;
        store(y[i], a.add ? load(y[i]) + value : value);
      }
    }
  });
}

void uniform_noise(const UniformNoise& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const std::uint64_t row_mix = mix(a.row_keys[row] ^ mix(a.seed_key));
      T* x = row_of<T>(a.x, row, a.pitch);
      for (std::int64_t i = 0; i < a.width; ++i) {
        const auto bits = static_cast<std::int32_t>(counter_bits(row_mix, i));
        const float unit = static_cast<float>(bits) * 0x1.0p-23F - 1.0F;
        store(x[i], load(x[i]) + unit * a.magnitude[row]);
      }
    }
  });
}

void embedding_gather(const EmbeddingGather& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto bytes = static_cast<std::size_t>(a.width) * sizeof(T);
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < a.rows; ++row) {
      std::memcpy(row_of<T>(a.out, row, a.out_pitch), row_of<T>(a.table, a.ids[row], a.width),
                  bytes);
    }
  });
}

void embedding_scatter(const EmbeddingScatter& a, Stream) {
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    // Threads own columns, so that equal ids are added in row order whatever the thread count.
    constexpr std::int64_t kColumns = 64;
    const std::int64_t blocks = (a.width + kColumns - 1) / kColumns;
#pragma omp parallel for schedule(static)
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t begin = block * kColumns;
      const std::int64_t end = std::min(begin + kColumns, a.width);
      for (std::int64_t row = 0; row < a.rows; ++row) {
        const T* dout = row_of<T>(a.dout, row, a.dout_pitch);
        float* target = a.dtable + static_cast<std::int64_t>(a.ids[row]) * a.width;
        for (std::int64_t i = begin; i < end; ++i) {
          target[i] += load(dout[i]);
        }
      }
    }
  });
}

double sum_of_squares(const float* values, std::int64_t count, Stream /*stream*/) {
  constexpr std::int64_t kBlock = 1 << 14;
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> partial(static_cast<std::size_t>(blocks), 0.0);
#pragma omp parallel for schedule(static)
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t end = std::min((block + 1) * kBlock, count);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = block * kBlock; i < end; ++i) {
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    partial[static_cast<std::size_t>(block)] = sum;
  }
  double total = 0;
  for (const double sum : partial) {
    total += sum;
  }
  return total;
}

}  // namespace

KernelTable make_table() {
  return {.rms_norm_forward = rms_norm_forward,
          .rms_norm_backward = rms_norm_backward,
          .rope = rope,
          .copy_heads = copy_heads,
          .scaled_copies = scaled_copies,
          .swiglu_forward = swiglu_forward,
          .swiglu_backward = swiglu_backward,
          .cross_entropy = cross_entropy,
          .adamw = adamw,
          .dropout = dropout,
          .uniform_noise = uniform_noise,
          .embedding_gather = embedding_gather,
          .embedding_scatter = embedding_scatter,
          .sum_of_squares = sum_of_squares};
}

}  // namespace longhaul::kernels::LONGHAUL_ISA
