// Bandwidth of the CUDA kernels in bf16: one JSON line for each kernel and shape. Bytes are those
// that the kernel must move (each operand once, cross-entropy's logits twice in and once out); time
// is the median of 20 runs by CUDA events, after two that are not counted.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_table.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using cuda::check;

constexpr int kWarmups = 2;
constexpr int kRuns = 20;
constexpr Dtype kType = Dtype::kBFloat16;
constexpr std::int64_t kHidden = 3584;
constexpr std::int64_t kFfn = 18944;
constexpr std::int64_t kVocab = 152064;
constexpr std::int64_t kHeads = 28;
constexpr std::int64_t kHeadDim = 128;

/// Device memory; `byte` in every byte (0x3C gives small finite numbers in either float type).
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::int64_t count, int byte = 0x3C) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    check(cudaMalloc(&data_, bytes), "cudaMalloc");
    check(cudaMemset(data_, byte, bytes), "cudaMemset");
  }
  ~Buffer() { (void)cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  [[nodiscard]] T* get() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};

using Half = std::uint16_t;

/// Whole numbers from a fixed generator, below `bound`.
void fill_ids(const Buffer<std::int32_t>& ids, std::int64_t count, std::int64_t bound) {
  std::vector<std::int32_t> host(static_cast<std::size_t>(count));
  std::uint64_t state = 1;
  for (std::int32_t& id : host) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    id = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(bound));
  }
  check(cudaMemcpy(ids.get(), host.data(), host.size() * sizeof(std::int32_t),
                   cudaMemcpyHostToDevice),
        "cudaMemcpy");
}

double median_ms(const std::function<void()>& run) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> times;
  for (int i = 0; i < kWarmups + kRuns; ++i) {
    check(cudaEventRecord(begin, nullptr), "cudaEventRecord");
    run();
    check(cudaEventRecord(end, nullptr), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= kWarmups) {
      times.push_back(ms);
    }
  }
  check(cudaEventDestroy(begin), "cudaEventDestroy");
  check(cudaEventDestroy(end), "cudaEventDestroy");
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

void report(const char* kernel, std::int64_t rows, std::int64_t width, double bytes,
            const std::function<void()>& run) {
  const double ms = median_ms(run);
  std::printf(
      "{\"kernel\": \"%s\", \"dtype\": \"bfloat16\", \"rows\": %lld, \"width\": %lld, "
      "\"median_ms\": %.4f, \"gb_per_s\": %.1f}\n",
      kernel, static_cast<long long>(rows), static_cast<long long>(width), ms, bytes / ms * 1e-6);
  std::fflush(stdout);
}

double bytes_of(std::int64_t rows, std::int64_t width, double operands) {
  return static_cast<double>(rows) * static_cast<double>(width) * operands * sizeof(Half);
}

void bench_norm(const char* forward, const char* backward, std::int64_t rows, std::int64_t groups,
                std::int64_t width) {
  const std::int64_t columns = groups * width;
  const Buffer<Half> x(rows * columns);
  const Buffer<Half> dy(rows * columns);
  const Buffer<Half> y(rows * columns);
  const Buffer<Half> weight(width);
  const Buffer<float> rstd(rows * groups);
  const Buffer<float> dweight(width, 0);
  report(forward, rows, columns, bytes_of(rows, columns, 2), [&] {
    cuda_kernels().rms_norm_forward({kType, x.get(), columns, weight.get(), y.get(), columns,
                                     rstd.get(), rows, groups, width, 1e-6F},
                                    nullptr);
  });
  RmsNormBackward call{.dtype = kType,
                       .x = x.get(),
                       .x_pitch = columns,
                       .weight = weight.get(),
                       .rstd = rstd.get(),
                       .dy = dy.get(),
                       .dy_pitch = columns,
                       .dx = y.get(),
                       .dx_pitch = columns,
                       .rows = rows,
                       .groups = groups,
                       .width = width};
  report(backward, rows, columns, bytes_of(rows, columns, 3),
         [&] { cuda_kernels().rms_norm_backward(call, nullptr); });
  call.add = y.get();
  call.add_pitch = columns;
  call.dweight = dweight.get();
  const std::string full = std::string(backward) + "_add_dweight";
  report(full.c_str(), rows, columns, bytes_of(rows, columns, 4),
         [&] { cuda_kernels().rms_norm_backward(call, nullptr); });
}

void bench_rope(std::int64_t rows) {
  const std::int64_t columns = kHeads * kHeadDim;
  const Buffer<Half> x(rows * columns);
  const Buffer<float> cosine(rows * kHeadDim / 2, 0);
  const Buffer<float> sine(rows * kHeadDim / 2, 0);
  report("rope", rows, columns, bytes_of(rows, columns, 2) + bytes_of(rows, kHeadDim, 2), [&] {
    cuda_kernels().rope({kType, x.get(), columns, cosine.get(), sine.get(), rows, kHeads, kHeadDim},
                        nullptr);
  });
}

/// q, k and v of `rows` tokens on their way to the blocks of `ranks` ranks, with and without RoPE.
void bench_copy_heads(std::int64_t rows, std::int64_t ranks) {
  constexpr std::int64_t kKvHeads = 4;
  constexpr std::int64_t kColumns = (kHeads + 2 * kKvHeads) * kHeadDim;
  const std::int64_t per_rank = kColumns / ranks;
  const Buffer<Half> local(rows * kColumns);
  const Buffer<Half> packed(rows * kColumns);
  const Buffer<float> cosine(rows * kHeadDim / 2, 0);
  const Buffer<float> sine(rows * kHeadDim / 2, 0);
  for (const bool rotated : {true, false}) {
    std::vector<HeadSegment> segments;
    const auto add = [&](std::int64_t from, std::int64_t rank, std::int64_t to,
                         std::int64_t columns, bool turns) {
      segments.push_back({local.get() + from, kColumns, packed.get() + rank * rows * per_rank + to,
                          per_rank, columns, turns});
    };
    const std::int64_t q = kHeads / ranks * kHeadDim;
    const std::int64_t kv = kKvHeads / ranks * kHeadDim;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      add(rank * q, rank, 0, q, rotated);
      add(kHeads * kHeadDim + rank * kv, rank, q, kv, rotated);
      add((kHeads + kKvHeads) * kHeadDim + rank * kv, rank, q + kv, kv, false);
    }
    const CopyHeads call{.dtype = kType,
                         .segments = segments.data(),
                         .num_segments = static_cast<std::int64_t>(segments.size()),
                         .cosine = cosine.get(),
                         .sine = sine.get(),
                         .rows = rows,
                         .head_dim = kHeadDim};
    const std::string name = std::string(rotated ? "copy_heads_rope_" : "copy_heads_") +
                             std::to_string(ranks) + "_ranks";
    report(name.c_str(), rows, kColumns,
           bytes_of(rows, kColumns, 2) + (rotated ? bytes_of(rows, kHeadDim, 2) : 0.0),
           [&] { cuda_kernels().copy_heads(call, nullptr); });
  }
}

void bench_swiglu(std::int64_t rows) {
  const Buffer<Half> gate_up(rows * 2 * kFfn);
  const Buffer<Half> out(rows * kFfn);
  report("swiglu_forward", rows, kFfn, bytes_of(rows, kFfn, 3), [&] {
    cuda_kernels().swiglu_forward({kType, gate_up.get(), 2 * kFfn, out.get(), kFfn, rows, kFfn},
                                  nullptr);
  });
  SwigluBackward call{kType,         gate_up.get(), 2 * kFfn, out.get(), kFfn,
                      gate_up.get(), 2 * kFfn,      rows,     kFfn};
  report("swiglu_backward", rows, kFfn, bytes_of(rows, kFfn, 5),
         [&] { cuda_kernels().swiglu_backward(call, nullptr); });
  call.out = out.get();
  call.out_pitch = kFfn;
  report("swiglu_backward_with_product", rows, kFfn, bytes_of(rows, kFfn, 6),
         [&] { cuda_kernels().swiglu_backward(call, nullptr); });
}

void bench_random(std::int64_t rows) {
  const Buffer<Half> x(rows * kHidden);
  const Buffer<Half> y(rows * kHidden);
  const Buffer<std::uint64_t> keys(rows);
  const Buffer<float> magnitude(rows, 0);
  Dropout call{.dtype = kType,
               .x = x.get(),
               .x_pitch = kHidden,
               .y = y.get(),
               .y_pitch = kHidden,
               .row_keys = keys.get(),
               .seed_key = 1,
               .rows = rows,
               .width = kHidden,
               .probability = 0.1F};
  report("dropout", rows, kHidden, bytes_of(rows, kHidden, 2),
         [&] { cuda_kernels().dropout(call, nullptr); });
  call.add = true;
  report("dropout_add", rows, kHidden, bytes_of(rows, kHidden, 3),
         [&] { cuda_kernels().dropout(call, nullptr); });
  report("uniform_noise", rows, kHidden, bytes_of(rows, kHidden, 2), [&] {
    cuda_kernels().uniform_noise(
        {kType, x.get(), kHidden, keys.get(), magnitude.get(), 1, rows, kHidden}, nullptr);
  });
}

/// Bytes of one pass over x; the narrow matrices are left out.
void bench_masked_products(std::int64_t rows, std::int64_t width, std::int64_t rank) {
  const Buffer<Half> x(rows * width);
  const Buffer<Half> u(rows * rank);
  const Buffer<Half> a(rank * width);
  const Buffer<float> da(rank * width, 0);
  const Buffer<std::uint64_t> keys(rows);
  MaskedProduct call{.x = x.get(),
                     .x_pitch = width,
                     .u = u.get(),
                     .u_pitch = rank,
                     .a = a.get(),
                     .a_pitch = width,
                     .row_keys = keys.get(),
                     .seed_key = 1,
                     .rows = rows,
                     .width = width,
                     .rank = rank,
                     .probability = 0.05F};
  report("masked_product", rows, width, bytes_of(rows, width, 1),
         [&] { cuda_kernels().masked_product(call, nullptr); });
  report("masked_x_gradient", rows, width, bytes_of(rows, width, 2),
         [&] { cuda_kernels().masked_x_gradient(call, nullptr); });
  call.a = da.get();
  report("masked_a_gradient", rows, width, bytes_of(rows, width, 1),
         [&] { cuda_kernels().masked_a_gradient(call, nullptr); });
}

void bench_embedding(std::int64_t rows) {
  const Buffer<Half> table(kVocab * kHidden);
  const Buffer<float> dtable(kVocab * kHidden, 0);
  const Buffer<Half> out(rows * kHidden);
  const Buffer<std::int32_t> ids(rows);
  fill_ids(ids, rows, kVocab);
  report("embedding_gather", rows, kHidden, bytes_of(rows, kHidden, 2), [&] {
    cuda_kernels().embedding_gather(
        {kType, table.get(), ids.get(), out.get(), kHidden, rows, kHidden}, nullptr);
  });
  // Gradient in, sums in and out; few ids repeat.
  report("embedding_scatter", rows, kHidden, bytes_of(rows, kHidden, 5), [&] {
    cuda_kernels().embedding_scatter(
        {kType, out.get(), kHidden, ids.get(), dtable.get(), rows, kHidden}, nullptr);
  });
}

void bench_cross_entropy() {
  for (const std::int64_t rows : {512, 2048}) {
    const Buffer<Half> logits(rows * kVocab);
    const Buffer<std::int32_t> labels(rows);
    const Buffer<double> loss(rows);
    const Buffer<std::uint8_t> correct(rows);
    fill_ids(labels, rows, kVocab);
    CrossEntropy call{kType,         logits.get(), kVocab, labels.get(), loss.get(),
                      correct.get(), rows,         kVocab, 0.0F};
    report("cross_entropy_loss", rows, kVocab, bytes_of(rows, kVocab, 1),
           [&] { cuda_kernels().cross_entropy(call, nullptr); });
    call.gradient_scale = 1e-3F;
    report("cross_entropy", rows, kVocab, bytes_of(rows, kVocab, 3),
           [&] { cuda_kernels().cross_entropy(call, nullptr); });
  }
}

void bench_optimizer() {
  constexpr std::int64_t kCount = kHidden * kFfn * 4;
  const Buffer<float> weight(kCount, 0);
  const Buffer<float> m(kCount, 0);
  const Buffer<float> v(kCount, 0);
  const Buffer<float> gradient(kCount);
  const Buffer<Half> copy(kCount);
  AdamW call{.weight = weight.get(),
             .exp_avg = m.get(),
             .exp_avg_sq = v.get(),
             .gradient = gradient.get(),
             .copy = copy.get(),
             .copy_dtype = kType,
             .count = kCount,
             .learning_rate = 1e-3,
             .beta1 = 0.9,
             .beta2 = 0.999,
             .epsilon = 1e-8};
  report("adamw", 1, kCount, bytes_of(1, kCount, 15), [&] { cuda_kernels().adamw(call, nullptr); });
  report("sum_of_squares", 1, kCount, bytes_of(1, kCount, 2),
         [&] { cuda_kernels().sum_of_squares(gradient.get(), kCount, nullptr); });
}

void bench_all() {
  for (const std::int64_t rows : {8192, 32768}) {
    bench_norm("rms_norm_forward", "rms_norm_backward", rows, 1, kHidden);
    bench_norm("qk_norm_forward", "qk_norm_backward", rows, kHeads, kHeadDim);
    bench_rope(rows);
    bench_copy_heads(rows, 2);
    bench_copy_heads(rows, 4);
    bench_swiglu(rows);
    bench_random(rows);
    bench_masked_products(rows, kHidden, 48);
    bench_masked_products(rows, kHidden, 32);
    bench_masked_products(rows, kFfn, 16);
    bench_embedding(rows);
  }
  bench_cross_entropy();
  bench_optimizer();
}

}  // namespace
}  // namespace longhaul::kernels

int main() {
  try {
    longhaul::kernels::bench_all();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
