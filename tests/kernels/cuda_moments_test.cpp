// AdamW of the CUDA table with moments in bf16: the CPU's bits wherever fp32 is exact, and its
// neighbours at most elsewhere.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "kernels/cuda_cases.h"
#include "kernels/cuda_table.h"

namespace longhaul::kernels {
namespace {

using testing::DeviceArray;
using testing::Numbers;
using Halves = std::vector<std::uint16_t>;

/// The state of an optimizer on the host.
struct State {
  std::vector<float> weight;
  Halves m;
  Halves v;
};

constexpr std::uint64_t kKey = 0xFEDCBA9876543210ULL;

AdamW adamw_call(std::size_t count, std::uint64_t key) {
  // Powers of two: products and sums of numbers with few bits are exact, fused or not.
  return {.moment_dtype = base::Dtype::kBFloat16,
          .rounding_key = key,
          .first_element = 4'294'967'290,  // passes 2³²
          .count = static_cast<std::int64_t>(count),
          .learning_rate = 1e-3,
          .beta1 = 0.5,
          .beta2 = 0.75,
          .epsilon = 1e-8,
          .weight_decay = 0.1,
          .bias_correction1 = 0.5,
          .bias_correction2 = 0.25};
}

void step_on_cpu(AdamW call, State& state, const std::vector<float>& gradient) {
  call.weight = state.weight.data();
  call.exp_avg = state.m.data();
  call.exp_avg_sq = state.v.data();
  call.gradient = gradient.data();
  cpu_kernels().adamw(call, nullptr);
}

/// A state on the device, its moments `shift` elements after a border.
class DeviceState {
 public:
  DeviceState(const State& state, std::size_t shift)
      : weight_(state.weight), m_(state.m, shift), v_(state.v, shift) {}
  void step(AdamW call, const std::vector<float>& host) const {
    const DeviceArray<float> gradient(host);
    call.weight = weight_.data();
    call.exp_avg = m_.data();
    call.exp_avg_sq = v_.data();
    call.gradient = gradient.data();
    cuda_kernels().adamw(call, nullptr);
    (void)weight_.read();  // the gradient lives until the step has ended
  }
  [[nodiscard]] State read() const { return {weight_.read(), m_.read(), v_.read()}; }

 private:
  DeviceArray<float> weight_;
  DeviceArray<std::uint16_t> m_;
  DeviceArray<std::uint16_t> v_;
};

/// A multiple of `unit` in [-limit, limit].
float multiple(Numbers& numbers, double unit, double limit) {
  return static_cast<float>(std::round(numbers.next(limit) / unit) * unit);
}

TEST(CudaBf16Moments, HaveTheBitsOfTheCpuWhereFp32IsExact) {
  for (const std::size_t count : {0, 1, 3, 5, 16, 1000, 100003}) {
    for (const std::size_t shift : {0, 1, 4}) {
      Numbers numbers(count + 1);
      State cpu;
      for (std::size_t i = 0; i < count; ++i) {
        cpu.weight.push_back(multiple(numbers, 0x1.0p-12, 1));
        cpu.m.push_back(base::float_to_bf16(multiple(numbers, 0x1.0p-10, 0.125)));
        cpu.v.push_back(base::float_to_bf16(std::abs(multiple(numbers, 0x1.0p-6, 2))));
      }
      const DeviceState device(cpu, shift);
      for (std::uint64_t step = 0; step < 5; ++step) {
        std::vector<float> gradient;
        for (std::size_t i = 0; i < count; ++i) {
          gradient.push_back(multiple(numbers, 0.125, 2));
        }
        step_on_cpu(adamw_call(count, kKey + step), cpu, gradient);
        device.step(adamw_call(count, kKey + step), gradient);
        const State got = device.read();
        ASSERT_EQ(got.m, cpu.m) << count << ", shift " << shift << ", step " << step;
        ASSERT_EQ(got.v, cpu.v) << count << ", shift " << shift << ", step " << step;
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_NEAR(got.weight[i], cpu.weight[i], 1e-6);
        }
      }
    }
  }
}

TEST(CudaBf16Moments, AreAtMostNeighboursOfTheCpusAndSeldomThat) {
  constexpr std::size_t kCount = 100003;
  Numbers numbers(5);
  State cpu;
  std::vector<float> gradient;
  for (std::size_t i = 0; i < kCount; ++i) {
    cpu.weight.push_back(static_cast<float>(numbers.next(1)));
    gradient.push_back(static_cast<float>(numbers.next(1)));
    // Both of the gradient's sign: no cancellation that would make fp32's rounding a large share.
    const double m = std::copysign(numbers.next(1), static_cast<double>(gradient.back()));
    cpu.m.push_back(base::float_to_bf16(static_cast<float>(m)));
    cpu.v.push_back(base::float_to_bf16(static_cast<float>(std::abs(numbers.next(1)))));
  }
  AdamW call = adamw_call(kCount, kKey);
  call.beta1 = 0.9;
  call.beta2 = 0.999;
  const DeviceState device(cpu, 0);
  step_on_cpu(call, cpu, gradient);
  device.step(call, gradient);
  const State got = device.read();
  int differ = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_LE(std::abs(got.m[i] - cpu.m[i]), 1) << i;
    ASSERT_LE(std::abs(got.v[i] - cpu.v[i]), 1) << i;
    differ += (got.m[i] == cpu.m[i] ? 0 : 1) + (got.v[i] == cpu.v[i] ? 0 : 1);
  }
  EXPECT_LE(differ, 100);  // a last bit of fp32 decides one of 65536 draws
}

TEST(CudaBf16Moments, LetNanAndInfinityThrough) {
  const State before{{1, 1, 1, 1, 1}, Halves(5, 0), Halves(5, 0)};
  const DeviceState device(before, 0);
  device.step(adamw_call(5, kKey), {std::numeric_limits<float>::quiet_NaN(), 1e30F, 1, 1, 1});
  const State got = device.read();
  EXPECT_TRUE(std::isnan(base::bf16_to_float(got.m[0])));
  EXPECT_TRUE(std::isnan(base::bf16_to_float(got.v[0])));
  EXPECT_TRUE(std::isinf(base::bf16_to_float(got.v[1])));
  EXPECT_TRUE(std::isfinite(base::bf16_to_float(got.m[1])));
  EXPECT_TRUE(std::isfinite(base::bf16_to_float(got.v[2])));
}

}  // namespace
}  // namespace longhaul::kernels
