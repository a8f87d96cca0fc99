// One AdamW step over flat fp32 buffers. Scalars are rounded to fp32 where the CPU kernel rounds
// them; results differ from it by the rounding that a fused multiply-add saves. Moments in bf16 are
// rounded by the CPU kernel's own function, under the same random bits.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/stochastic_round.h"

namespace longhaul::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct Step {
  AdamW a;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float keep;
  float rate;
  float root_correction;
  float epsilon;
};

Step make_step(const AdamW& a) {
  return {.a = a,
          .beta1 = static_cast<float>(a.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - a.beta2),
          .keep = static_cast<float>(1.0 - a.learning_rate * a.weight_decay),
          .rate = static_cast<float>(a.learning_rate / a.bias_correction1),
          .root_correction = static_cast<float>(std::sqrt(a.bias_correction2)),
          .epsilon = static_cast<float>(a.epsilon)};
}

/// Stores N new values of both moments that begin at `at`: fp32 as they are, bf16 rounded.
template <typename M, int N>
__device__ void store_moments(const AdamW& a, std::int64_t at, const float (&m)[N],
                              const float (&v)[N]) {
  Vector<M, N> m_out{};
  Vector<M, N> v_out{};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if constexpr (std::is_same_v<M, float>) {
      m_out.set(i, m[i]);
      v_out.set(i, v[i]);
    } else {
      const std::uint32_t random = rounding_bits(a.rounding_key, a.first_element + at + i);
      m_out.set(i, BFloat16{round_stochastically(__float_as_uint(m[i]), random >> 16)});
      v_out.set(i, BFloat16{round_stochastically(__float_as_uint(v[i]), random)});
    }
  }
  store_vector(static_cast<M*>(a.exp_avg) + at, m_out);
  store_vector(static_cast<M*>(a.exp_avg_sq) + at, v_out);
}

/// N values of each thread, from `first` on: as vectors, or one by one. Moments of type M.
template <typename M, int N>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(Step s, std::int64_t first, std::int64_t end) {
  const std::int64_t at = first + (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (at >= end) {
    return;
  }
  constexpr bool kWhole = N > 1;
  float weight[N];
  float m[N];
  float v[N];
  float gradient[N];
  load_floats<kWhole>(s.a.gradient + at, N, gradient);
  const auto m_in = load_vector<N>(static_cast<const M*>(s.a.exp_avg) + at);
  const auto v_in = load_vector<N>(static_cast<const M*>(s.a.exp_avg_sq) + at);
  load_floats<kWhole>(s.a.weight + at, N, weight);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float g = gradient[i] * s.a.gradient_factor;
    m[i] = fmaf(m_in[i], s.beta1, g * s.one_minus_beta1);
    v[i] = fmaf(v_in[i], s.beta2, g * g * s.one_minus_beta2);
    const float denominator = sqrtf(v[i]) / s.root_correction + s.epsilon;
    weight[i] = fmaf(weight[i], s.keep, -(s.rate * m[i] / denominator));
  }
  store_moments<M>(s.a, at, m, v);
  store_floats<kWhole>(s.a.weight + at, N, weight);
  if (s.a.copy == nullptr) {
    return;
  }
  if (s.a.copy_dtype == base::Dtype::kBFloat16) {
    store_vector(static_cast<BFloat16*>(s.a.copy) + at, to_vector<BFloat16>(weight));
  } else {
    store_vector(static_cast<float*>(s.a.copy) + at, to_vector<float>(weight));
  }
}

/// Values begin … end−1, a multiple of N.
template <typename M, int N>
void run_adamw(const Step& step, std::int64_t begin, std::int64_t end, Stream stream) {
  constexpr std::int64_t kPerBlock = std::int64_t{kThreads} * N;
  constexpr std::int64_t kPerLaunch = kPerBlock << 30;
  for (std::int64_t first = begin; first < end; first += kPerLaunch) {
    const std::int64_t blocks = divide_up(std::min(kPerLaunch, end - first), kPerBlock);
    launch("adamw", adamw_kernel<M, N>, dim3(static_cast<unsigned>(blocks)), kThreads, stream, step,
           first, end);
  }
}

bool aligned_to(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

void adamw(const AdamW& a, Stream stream) {
  LONGHAUL_ASSERT(a.copy == nullptr || a.copy_dtype == base::Dtype::kFloat32 ||
                      a.copy_dtype == base::Dtype::kBFloat16,
                  "the copy is float32 or bfloat16");
  const std::size_t copy_bytes = a.copy_dtype == base::Dtype::kBFloat16 ? 8 : 16;
  dispatch(a.moment_dtype, [&](auto tag) {
    using M = decltype(tag);
    constexpr std::size_t kMomentBytes = 4 * sizeof(M);
    const bool aligned = aligned_to(a.weight, 16) && aligned_to(a.exp_avg, kMomentBytes) &&
                         aligned_to(a.exp_avg_sq, kMomentBytes) && aligned_to(a.gradient, 16) &&
                         aligned_to(a.copy, copy_bytes);
    const std::int64_t in_vectors = aligned ? a.count / 4 * 4 : 0;
    const Step step = make_step(a);
    run_adamw<M, 4>(step, 0, in_vectors, stream);
    run_adamw<M, 1>(step, in_vectors, a.count, stream);
  });
}

}  // namespace longhaul::kernels::cuda
