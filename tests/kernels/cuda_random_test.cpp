// Dropout and noise of the CUDA table draw what the CPU table draws.
#include <gtest/gtest.h>

#include <cmath>
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

class CudaRandom : public ::testing::TestWithParam<Dtype> {};

INSTANTIATE_TEST_SUITE_P(Types, CudaRandom, ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16),
                         [](const auto& test) {
                           return test.param == Dtype::kFloat32 ? "fp32" : "bf16";
                         });

std::vector<std::uint64_t> keys_of(std::int64_t count) {
  std::vector<std::uint64_t> keys;
  for (std::int64_t i = 0; i < count; ++i) {
    keys.push_back((std::uint64_t{3} << 32) | static_cast<std::uint64_t>(i));
  }
  return keys;
}

struct Results {
  Matrix cuda;
  Matrix cpu;
};

Results run_dropout(Dropout call, const Matrix& x, const Matrix& y) {
  const std::vector<std::uint64_t> keys = keys_of(x.rows());
  const DeviceArray<std::uint64_t> device_keys(keys);
  const DeviceMatrix device_x(x, call.dtype);
  const DeviceMatrix device_y(y, call.dtype);
  Matrix cpu = y;
  call.x = x.data();
  call.x_pitch = x.pitch();
  call.y = cpu.data();
  call.y_pitch = y.pitch();
  call.row_keys = keys.data();
  call.rows = x.rows();
  call.width = x.width();
  cpu_kernels().dropout(call, nullptr);
  call.x = device_x.data();
  call.y = device_y.data();
  call.row_keys = device_keys.data();
  cuda_kernels().dropout(call, nullptr);
  return {device_y.read(), cpu};
}

TEST_P(CudaRandom, DropoutHasTheBitsOfTheCpu) {
  // Probabilities on and between the steps of the 24 bits, and both ends.
  for (const float p : {0.0F, 0x1.0p-24F, 0x1.8p-24F, 0.05F, 0.1F, 0.5F, 0x1.000002p-1F, 0.9F,
                        0x1.fffffep-1F, 1.0F}) {
    for (const std::int64_t width : {1, 7, 64, 576, 3584}) {
      for (const std::int64_t gap : {0, 1}) {
        Numbers numbers(1);
        const Matrix x(GetParam(), 33, width, numbers, 1, gap);
        const Results results = run_dropout({.dtype = GetParam(), .seed_key = 5, .probability = p},
                                            x, Matrix(GetParam(), 33, width, gap));
        ASSERT_EQ(results.cuda, results.cpu) << p << ", " << width;
      }
    }
  }
}

TEST_P(CudaRandom, DropoutCutsItsMaskByColumns) {
  for (const std::int64_t first : {1, 16, 33, 50, 96}) {  // 33 leaves whole vectors of half pairs
    Numbers numbers(2);
    const Matrix x(GetParam(), 12, 97 - first, numbers);
    const Results results = run_dropout({.dtype = GetParam(),
                                         .seed_key = ~std::uint64_t{0},
                                         .first_column = first,
                                         .probability = 0.3F},
                                        x, Matrix(GetParam(), 12, 97 - first));
    EXPECT_EQ(results.cuda, results.cpu);
  }
}

TEST_P(CudaRandom, DropoutAddsToItsOutput) {
  for (const std::int64_t width : {7, 64, 3584}) {
    Numbers numbers(3);
    const Matrix x(GetParam(), 20, width, numbers, 1, 0);
    const Matrix y(GetParam(), 20, width, numbers, 1, 0);
    const Results results =
        run_dropout({.dtype = GetParam(), .seed_key = 5, .probability = 0.4F, .add = true}, x, y);
    const double last_place = GetParam() == Dtype::kBFloat16 ? 0x1.0p-7 : 0.0;
    EXPECT_EQ(difference(results.cuda, Dtype::kFloat32, 3e-7 + last_place, 1,
                         [&](std::int64_t row, std::int64_t column) {
                           return results.cpu.at(row, column);
                         }),
              "");
  }
}

TEST_P(CudaRandom, DropoutWorksInPlace) {
  const std::vector<std::uint64_t> keys = keys_of(40);
  const DeviceArray<std::uint64_t> device_keys(keys);
  Numbers numbers(4);
  const Matrix x(GetParam(), 40, 576, numbers, 1, 0);
  const DeviceMatrix in_place(x, GetParam());
  cuda_kernels().dropout({.dtype = GetParam(),
                          .x = in_place.data(),
                          .x_pitch = 576,
                          .y = in_place.data(),
                          .y_pitch = 576,
                          .row_keys = device_keys.data(),
                          .seed_key = 5,
                          .rows = 40,
                          .width = 576,
                          .probability = 0.25F},
                         nullptr);
  const Results apart = run_dropout({.dtype = GetParam(), .seed_key = 5, .probability = 0.25F}, x,
                                    Matrix(GetParam(), 40, 576, 0));
  EXPECT_EQ(in_place.read(), apart.cuda);
}

Results run_noise(const Matrix& x, Dtype dtype) {
  const std::vector<std::uint64_t> keys = keys_of(x.rows());
  std::vector<float> magnitude;
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    magnitude.push_back(0.37F * static_cast<float>(row % 5));
  }
  const DeviceArray<std::uint64_t> device_keys(keys);
  const DeviceArray<float> device_magnitude(magnitude);
  const DeviceMatrix device_x(x, dtype);
  Matrix cpu = x;
  UniformNoise call{dtype, cpu.data(), cpu.pitch(), keys.data(), magnitude.data(),
                    8,     x.rows(),   x.width()};
  cpu_kernels().uniform_noise(call, nullptr);
  call.x = device_x.data();
  call.row_keys = device_keys.data();
  call.magnitude = device_magnitude.data();
  cuda_kernels().uniform_noise(call, nullptr);
  return {device_x.read(), cpu};
}

TEST_P(CudaRandom, NoiseHasTheBitsOfTheCpu) {
  for (const std::int64_t rows : {0, 1, 3, 1000}) {
    for (const std::int64_t width : {1, 7, 64, 576}) {
      for (const std::int64_t gap : {0, 1}) {
        const Results alone = run_noise(Matrix(GetParam(), rows, width, gap), GetParam());
        ASSERT_EQ(alone.cuda, alone.cpu) << width;
      }
    }
  }
}

TEST_P(CudaRandom, NoiseIsAddedToWhatWasThere) {
  Numbers numbers(5);
  const Results sum = run_noise(Matrix(GetParam(), 50, 576, numbers, 1, 0), GetParam());
  const double last_place = GetParam() == Dtype::kBFloat16 ? 0x1.0p-7 : 0.0;
  EXPECT_EQ(
      difference(sum.cuda, Dtype::kFloat32, 3e-7 + last_place, 1,
                 [&](std::int64_t row, std::int64_t column) { return sum.cpu.at(row, column); }),
      "");
}

}  // namespace
}  // namespace longhaul::kernels
