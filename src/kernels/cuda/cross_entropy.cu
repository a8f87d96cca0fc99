// Cross-entropy of one row by one block. The first pass keeps a running maximum and the sum of
// exponentials below it; the second writes the gradient over the logits. Each thread sums at most a
// few hundred exponentials in fp32, threads are added in fp64.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/team.cuh"

namespace longhaul::kernels::cuda {
namespace {

constexpr int kVectors = 4;  // independent loads of a thread
constexpr std::int64_t kRowsPerLaunch = std::int64_t{1} << 30;

/// What a thread, and after `combine` the block, knows of its part of a row.
struct Softmax {
  float largest = -FLT_MAX;  // finite, so that a part of −∞ alone gives a sum of 0 and no NaN
  float sum = 0.0F;          // Σ exp(logit − largest)
  bool beaten = false;       // an entry before the label is as large, or one after it larger
};

template <typename T, bool kWhole, int kThreads>
struct Row {
  static constexpr int N = kPack<T>;
  using Pack = Vector<T, N>;
  static constexpr int kStep = kThreads * kVectors;
  T* logits;
  int vocab;
  int label;
  int vectors;

  __device__ void load(int first, Pack (&batch)[kVectors]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int at = first + v * kThreads;
      const int valid = at < vectors ? vocab - at * N : 0;
      batch[v] = load_part<kWhole>(logits + std::int64_t{at} * N, valid, -INFINITY);
    }
  }

  __device__ bool beats(float at_label, int at, const Pack& pack, float pack_largest) const {
    const int begin = at * N;
    if (label < begin) {
      return pack_largest > at_label;
    }
    if (label >= begin + N) {
      return pack_largest >= at_label;
    }
    bool result = false;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int column = begin + i;
      result = result || (column < label && pack[i] >= at_label) ||
               (column > label && pack[i] > at_label);
    }
    return result;
  }

  __device__ Softmax scan(float at_label) const {
    Softmax softmax;
    for (int first = threadIdx.x; first < vectors; first += kStep) {
      Pack batch[kVectors];
      load(first, batch);
      float largest = softmax.largest;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        float pack_largest = batch[v][0];
#pragma unroll
        for (int i = 1; i < N; ++i) {
          pack_largest = fmaxf(pack_largest, batch[v][i]);
        }
        largest = fmaxf(largest, pack_largest);
        softmax.beaten |= beats(at_label, first + v * kThreads, batch[v], pack_largest);
      }
      // Rounded on its own, whatever multiply-adds the compiler would make of it.
      softmax.sum = __fmul_rn(softmax.sum, exponential<T>(softmax.largest - largest));
      softmax.largest = largest;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          softmax.sum += exponential<T>(batch[v][i] - largest);
        }
      }
    }
    return softmax;
  }

  /// Backwards, because the end of the row is what the caches still hold from the first pass.
  __device__ void write_gradient(float largest, float factor, float label_gradient) const {
    for (int step = (vectors - 1) / kStep; step >= 0; --step) {
      const int first = step * kStep + static_cast<int>(threadIdx.x);
      Pack batch[kVectors];
      load(first, batch);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int at = first + v * kThreads;
        if (at >= vectors) {
          continue;
        }
        float out[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
          out[i] =
              at * N + i == label ? label_gradient : exponential<T>(batch[v][i] - largest) * factor;
        }
        store_part<kWhole>(logits + std::int64_t{at} * N, vocab - at * N, to_vector<T>(out));
      }
    }
  }
};

template <typename T, bool kWhole, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    cross_entropy_kernel(CrossEntropy a, std::int64_t first_row) {
  const std::int64_t row_at = first_row + blockIdx.x;
  const int vocab = static_cast<int>(a.vocab);
  const int label = a.labels[row_at];
  const Row<T, kWhole, kThreads> row{static_cast<T*>(a.logits) + row_at * a.pitch, vocab, label,
                                     (vocab + kPack<T> - 1) / kPack<T>};
  Vector<T, 1> label_logit{};
  label_logit.set(0, row.logits[label]);
  const float at_label = label_logit[0];
  const Softmax part = row.scan(at_label);
  const float largest = block_max<kThreads>(part.largest);
  // Barriers of the sums also keep the second pass from overwriting what others still read.
  const double total = block_sum<kThreads>(static_cast<double>(part.sum) *
                                           static_cast<double>(expf(part.largest - largest)));
  const bool beaten = __syncthreads_or(part.beaten ? 1 : 0) != 0;
  if (threadIdx.x == 0) {
    a.row_loss[row_at] = log(total) + static_cast<double>(largest) - static_cast<double>(at_label);
    a.correct[row_at] = !beaten && total == total ? 1 : 0;  // a row with NaN has no arg-max
  }
  if (a.gradient_scale == 0.0F) {
    return;
  }
  // p − 1 in fp64: the exponential would round p before the subtraction.
  const double p = exp(static_cast<double>(at_label) - static_cast<double>(largest)) / total;
  row.write_gradient(largest, static_cast<float>(1.0 / total) * a.gradient_scale,
                     static_cast<float>((p - 1.0) * static_cast<double>(a.gradient_scale)));
}

template <typename T, bool kWhole, int kThreads>
void run_cross_entropy(const CrossEntropy& a, Stream stream) {
  for (std::int64_t first = 0; first < a.rows; first += kRowsPerLaunch) {
    const auto blocks = static_cast<unsigned>(std::min(kRowsPerLaunch, a.rows - first));
    launch("cross_entropy", cross_entropy_kernel<T, kWhole, kThreads>, dim3(blocks), kThreads,
           stream, a, first);
  }
}

}  // namespace

void cross_entropy(const CrossEntropy& a, Stream stream) {
  LONGHAUL_ASSERT(a.rows == 0 || (a.vocab >= 1 && a.vocab <= (1 << 30)),
                  "a vocabulary has 1 to 2^30 entries");
  dispatch(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const bool whole =
        a.vocab % kPack<T> == 0 && rows_aligned({{a.logits, a.pitch}}, a.rows, sizeof(T));
    const bool is_large = a.vocab > 16384;  // fills the larger block several times
    if (whole && is_large) {
      run_cross_entropy<T, true, 512>(a, stream);
    } else if (whole) {
      run_cross_entropy<T, true, 128>(a, stream);
    } else if (is_large) {
      run_cross_entropy<T, false, 512>(a, stream);
    } else {
      run_cross_entropy<T, false, 128>(a, stream);
    }
  });
}

}  // namespace longhaul::kernels::cuda
