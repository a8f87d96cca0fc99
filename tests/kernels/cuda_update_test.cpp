// AdamW, embedding gather and scatter, and the sum of squares of the CUDA table.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda_cases.h"
#include "kernels/cuda_table.h"

namespace longhaul::kernels {
namespace {

using base::Dtype;
using testing::DeviceArray;
using testing::DeviceMatrix;
using testing::Matrix;
using testing::Numbers;

/// The state of an optimizer on the host.
struct State {
  std::vector<float> weight;
  std::vector<float> m;
  std::vector<float> v;
};

AdamW adamw_call(int t, std::int64_t count, Dtype copy_dtype) {
  return {.copy_dtype = copy_dtype,
          .count = count,
          .learning_rate = 1e-2 / t,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-8,
          .weight_decay = 0.1,
          .bias_correction1 = 1 - std::pow(0.9, t),
          .bias_correction2 = 1 - std::pow(0.95, t),
          .gradient_factor = t % 2 == 0 ? 0.25F : 1.0F};
}

State first_state(std::int64_t count) {
  Numbers numbers(static_cast<std::uint64_t>(count) + 1);
  const auto size = static_cast<std::size_t>(count);
  State state{std::vector<float>(size), std::vector<float>(size, 0), std::vector<float>(size, 0)};
  for (float& value : state.weight) {
    value = static_cast<float>(numbers.next(1));
  }
  return state;
}

/// Zero and tiny gradients too: the denominator is then epsilon alone or nearly so.
std::vector<float> gradients(std::int64_t count, Numbers& numbers) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = i % 5 == 0 ? 0.0F : static_cast<float>(numbers.next(i % 3 == 0 ? 1e-9 : 2));
  }
  return result;
}

void expect_same_state(const State& got, const State& want) {
  for (std::size_t i = 0; i < want.weight.size(); ++i) {
    // Moments within the roundings of the largest gradient that they averaged.
    ASSERT_NEAR(got.weight[i], want.weight[i], 1e-6) << i;
    ASSERT_NEAR(got.m[i], want.m[i], 2e-7) << i;
    ASSERT_NEAR(got.v[i], want.v[i], 1e-6 * want.v[i]) << i;
  }
}

TEST(CudaAdamW, FollowsTheCpuOverManySteps) {
  for (const std::int64_t count : {0, 1, 3, 5, 16, 1000, 100003}) {
    for (const std::size_t shift : {0, 1}) {
      State cpu = first_state(count);
      const DeviceArray<float> weight(cpu.weight, shift);
      const DeviceArray<float> m(cpu.m, shift);
      const DeviceArray<float> v(cpu.v);
      Numbers numbers(9);
      for (int t = 1; t <= 12; ++t) {
        const std::vector<float> host = gradients(count, numbers);
        const DeviceArray<float> gradient(host);
        AdamW call = adamw_call(t, count, Dtype::kFloat32);
        call.weight = cpu.weight.data();
        call.exp_avg = cpu.m.data();
        call.exp_avg_sq = cpu.v.data();
        call.gradient = host.data();
        cpu_kernels().adamw(call, nullptr);
        call.weight = weight.data();
        call.exp_avg = m.data();
        call.exp_avg_sq = v.data();
        call.gradient = gradient.data();
        cuda_kernels().adamw(call, nullptr);
        expect_same_state({weight.read(), m.read(), v.read()}, cpu);
      }
    }
  }
}

TEST(CudaAdamW, RoundsTheNewWeightIntoItsCopy) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
    for (const std::int64_t count : {1, 21, 4096}) {
      for (const std::size_t shift : {0, 1}) {
        const State state = first_state(count);
        const DeviceArray<float> weight(state.weight);
        const DeviceArray<float> m(state.m);
        const DeviceArray<float> v(state.v);
        Numbers numbers(4);
        const DeviceArray<float> gradient(gradients(count, numbers));
        const DeviceMatrix copy(Matrix(dtype, 1, count), dtype, shift);
        AdamW call = adamw_call(1, count, dtype);
        call.weight = weight.data();
        call.exp_avg = m.data();
        call.exp_avg_sq = v.data();
        call.gradient = gradient.data();
        call.copy = copy.data();
        cuda_kernels().adamw(call, nullptr);
        const std::vector<float> updated = weight.read();
        EXPECT_NE(updated, state.weight);
        Matrix expected(dtype, 1, count);
        for (std::int64_t i = 0; i < count; ++i) {
          expected.set(0, i, updated[static_cast<std::size_t>(i)]);
        }
        EXPECT_EQ(copy.read(), expected);
      }
    }
  }
}

TEST(CudaEmbedding, GatherCopiesRowsOfTheTable) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
    for (const std::int64_t width : {1, 7, 64, 576, 3584}) {
      for (const std::int64_t gap : {0, 1}) {
        for (const std::int64_t rows : {0, 1, 3, 1000}) {
          Numbers numbers(5);
          const Matrix host(dtype, 6, width, numbers, 1, 0);
          std::vector<std::int32_t> ids;
          Matrix expected(dtype, rows, width, gap);
          for (std::int64_t row = 0; row < rows; ++row) {
            ids.push_back(static_cast<std::int32_t>((row * row + 5) % 6));
            for (std::int64_t i = 0; i < width; ++i) {
              expected.set(row, i, host.at(ids.back(), i));
            }
          }
          const DeviceMatrix table(host, dtype);
          const DeviceArray<std::int32_t> device_ids(ids);
          const DeviceMatrix out(Matrix(dtype, rows, width, gap), dtype);
          cuda_kernels().embedding_gather(
              {dtype, table.data(), device_ids.data(), out.data(), out.pitch(), rows, width},
              nullptr);
          ASSERT_EQ(out.read(), expected) << width;
        }
      }
    }
  }
}

enum class Ids { kAllEqual, kFew, kDistinct, kMixed };

std::vector<std::int32_t> make_ids(Ids kind, std::int64_t rows, std::int64_t table_rows) {
  std::vector<std::int32_t> ids;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t scattered = row * 7919 % table_rows;
    const std::int64_t id = kind == Ids::kAllEqual   ? 3
                            : kind == Ids::kFew      ? scattered % 7
                            : kind == Ids::kDistinct ? scattered
                                                     : (row % 3 == 0 ? 5 : scattered);
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

/// The CPU's sums, and the device's, of one scatter.
void expect_same_scatter(Dtype dtype, const Matrix& dout, const std::vector<std::int32_t>& ids,
                         std::int64_t table_rows, int runs) {
  const std::int64_t width = dout.width();
  std::vector<float> cpu(static_cast<std::size_t>(table_rows * width), 0.125F);
  const std::vector<float> before = cpu;
  EmbeddingScatter call{dtype,      dout.data(), dout.pitch(), ids.data(),
                        cpu.data(), dout.rows(), width};
  cpu_kernels().embedding_scatter(call, nullptr);
  const DeviceMatrix device_dout(dout, dtype);
  const DeviceArray<std::int32_t> device_ids(ids);
  for (int run = 0; run < runs; ++run) {
    const DeviceArray<float> table(before);
    call.dout = device_dout.data();
    call.ids = device_ids.data();
    call.dtable = table.data();
    cuda_kernels().embedding_scatter(call, nullptr);
    ASSERT_EQ(table.read(), cpu) << width << ", run " << run;
  }
}

TEST(CudaEmbedding, ScatterHasTheBitsOfTheCpu) {
  constexpr std::int64_t kTableRows = 1009;
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
    for (const std::int64_t width : {1, 7, 64, 576, 3584}) {
      for (const std::int64_t rows : {0, 1, 3, 1000}) {
        for (const Ids kind : {Ids::kAllEqual, Ids::kFew, Ids::kDistinct, Ids::kMixed}) {
          Numbers numbers(6);
          const Matrix dout(dtype, rows, width, numbers, 1e4, width % 2);
          expect_same_scatter(dtype, dout, make_ids(kind, rows, kTableRows), kTableRows, 1);
        }
      }
      Numbers numbers(7);
      const Matrix unaligned(dtype, 100, width, numbers, 1e4, 1);
      expect_same_scatter(dtype, unaligned, make_ids(Ids::kMixed, 100, kTableRows), kTableRows, 1);
    }
  }
}

TEST(CudaEmbedding, ScatterOfManyRowsHasTheSameBitsEveryTime) {
  constexpr std::int64_t kTableRows = 152064;
  Numbers numbers(8);
  const Matrix dout(Dtype::kBFloat16, 70000, 8, numbers, 1e4, 0);
  expect_same_scatter(Dtype::kBFloat16, dout, make_ids(Ids::kMixed, 70000, kTableRows), kTableRows,
                      20);
}

TEST(CudaSumOfSquares, IsRightAndDoesNotDependOnTheAddress) {
  for (const std::int64_t count : {0, 1, 7, 4095, 4096, 4097, 100003, 5000001}) {
    Numbers numbers(7);
    std::vector<float> values(static_cast<std::size_t>(count));
    long double want = 0;
    for (float& value : values) {
      value = static_cast<float>(numbers.next(3));
      want += static_cast<long double>(value) * value;
    }
    const DeviceArray<float> aligned(values);
    const DeviceArray<float> shifted(values, 1);
    const double first = cuda_kernels().sum_of_squares(aligned.data(), count, nullptr);
    EXPECT_NEAR(first, static_cast<double>(want), 1e-12 * static_cast<double>(want)) << count;
    for (int run = 0; run < 20; ++run) {
      ASSERT_EQ(cuda_kernels().sum_of_squares(aligned.data(), count, nullptr), first) << count;
    }
    EXPECT_EQ(cuda_kernels().sum_of_squares(shifted.data(), count, nullptr), first) << count;
  }
}

TEST(CudaSumOfSquares, DoesNotOverflowAndShowsWhatIsNotFinite) {
  std::vector<float> values(20000, 1e30F);
  const auto sum = [&] {
    const DeviceArray<float> device(values);
    return cuda_kernels().sum_of_squares(device.data(), 20000, nullptr);
  };
  EXPECT_NEAR(sum() / 2e64, 1, 1e-6);
  values[17000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sum()));
  values[17000] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(sum()));
}

}  // namespace
}  // namespace longhaul::kernels
