// One AdamW step over flat fp32 buffers. Scalars are rounded to fp32 where the CPU kernel rounds
// them; results differ from it by the rounding that a fused multiply-add saves.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"

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

/// N values of each thread, from `first` on: as vectors, or one by one.
template <int N>
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
  load_floats<kWhole>(s.a.exp_avg + at, N, m);
  load_floats<kWhole>(s.a.exp_avg_sq + at, N, v);
  load_floats<kWhole>(s.a.weight + at, N, weight);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float g = gradient[i] * s.a.gradient_factor;
    m[i] = fmaf(m[i], s.beta1, g * s.one_minus_beta1);
    v[i] = fmaf(v[i], s.beta2, g * g * s.one_minus_beta2);
    const float denominator = sqrtf(v[i]) / s.root_correction + s.epsilon;
    weight[i] = fmaf(weight[i], s.keep, -(s.rate * m[i] / denominator));
  }
  store_floats<kWhole>(s.a.exp_avg + at, N, m);
  store_floats<kWhole>(s.a.exp_avg_sq + at, N, v);
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
template <int N>
void run_adamw(const Step& step, std::int64_t begin, std::int64_t end, Stream stream) {
  constexpr std::int64_t kPerBlock = std::int64_t{kThreads} * N;
  constexpr std::int64_t kPerLaunch = kPerBlock << 30;
  for (std::int64_t first = begin; first < end; first += kPerLaunch) {
    const std::int64_t blocks = divide_up(std::min(kPerLaunch, end - first), kPerBlock);
    launch("adamw", adamw_kernel<N>, dim3(static_cast<unsigned>(blocks)), kThreads, stream, step,
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
  const bool aligned = aligned_to(a.weight, 16) && aligned_to(a.exp_avg, 16) &&
                       aligned_to(a.exp_avg_sq, 16) && aligned_to(a.gradient, 16) &&
                       aligned_to(a.copy, copy_bytes);
  const std::int64_t in_vectors = aligned ? a.count / 4 * 4 : 0;
  const Step step = make_step(a);
  run_adamw<4>(step, 0, in_vectors, stream);
  run_adamw<1>(step, in_vectors, a.count, stream);
}

}  // namespace longhaul::kernels::cuda
