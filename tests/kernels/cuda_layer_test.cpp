// Rotary embedding and SwiGLU of the CUDA table against the CPU table and the plain formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
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

constexpr double kFp32Limit = 4e-6;

class CudaLayer : public ::testing::TestWithParam<Dtype> {};

INSTANTIATE_TEST_SUITE_P(Types, CudaLayer, ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16),
                         [](const auto& test) {
                           return test.param == Dtype::kFloat32 ? "fp32" : "bf16";
                         });

/// rows × width in the shapes of the small and the large models, and odd ones.
std::vector<std::pair<std::int64_t, std::int64_t>> row_shapes() {
  return {{0, 3},    {1, 1},    {3, 7},      {1000, 7},  {1000, 64}, {1000, 576},
          {1, 3584}, {3, 3584}, {100, 3584}, {1, 18944}, {3, 18944}};
}

struct Angles {
  Angles(std::int64_t rows, std::int64_t half) {
    Numbers numbers(7);
    for (std::int64_t i = 0; i < rows * half; ++i) {
      const double angle = numbers.next(3);
      cosine.push_back(static_cast<float>(std::cos(angle)));
      sine.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  std::vector<float> cosine;
  std::vector<float> sine;
};

TEST_P(CudaLayer, RopeEqualsTheFormulaAndTheCpu) {
  for (const auto& [rows, heads, dim] :
       {std::tuple{0, 2, 4}, {1, 1, 2}, {3, 5, 6}, {1000, 3, 64}, {37, 28, 128}, {2, 3, 34}}) {
    for (const std::int64_t gap : {0, 1, 8}) {
      for (const bool inverse : {false, true}) {
        const std::int64_t half = dim / 2;
        const Angles angles(rows, half);
        Numbers numbers(8);
        const Matrix before(GetParam(), rows, std::int64_t{heads} * dim, numbers, 1, gap);
        const DeviceMatrix x(before, GetParam());
        const DeviceArray<float> cosine(angles.cosine);
        const DeviceArray<float> sine(angles.sine);
        Matrix cpu = before;
        Rope call{
            GetParam(), cpu.data(), cpu.pitch(), angles.cosine.data(), angles.sine.data(), rows,
            heads,      dim,        inverse};
        cpu_kernels().rope(call, nullptr);
        call.x = x.data();
        call.cosine = cosine.data();
        call.sine = sine.data();
        cuda_kernels().rope(call, nullptr);
        const auto expected = [&](std::int64_t row, std::int64_t column) {
          const std::int64_t within = column % (2 * half);
          const auto angle = static_cast<std::size_t>(row * half + within % half);
          const double c = angles.cosine[angle];
          const double s = inverse ? -angles.sine[angle] : angles.sine[angle];
          return within < half ? before.at(row, column) * c - before.at(row, column + half) * s
                               : before.at(row, column) * c + before.at(row, column - half) * s;
        };
        ASSERT_EQ(compare(x.read(), cpu, GetParam(), kFp32Limit, 1, expected), "")
            << dim << ", gap " << gap;
      }
    }
  }
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST_P(CudaLayer, SwigluEqualsTheFormulaAndTheCpu) {
  for (const auto& [rows, width] : row_shapes()) {
    for (const std::int64_t gap : {0, 1}) {
      Numbers numbers(10);
      const Matrix gate_up(GetParam(), rows, 2 * width, numbers, 6, gap);
      const DeviceMatrix in(gate_up, GetParam());
      Matrix cpu(GetParam(), rows, width, gap);
      const DeviceMatrix out(cpu, GetParam());
      cpu_kernels().swiglu_forward(
          {GetParam(), gate_up.data(), gate_up.pitch(), cpu.data(), cpu.pitch(), rows, width},
          nullptr);
      cuda_kernels().swiglu_forward(
          {GetParam(), in.data(), in.pitch(), out.data(), out.pitch(), rows, width}, nullptr);
      const auto expected = [&, w = width](std::int64_t row, std::int64_t column) {
        const double gate = gate_up.at(row, column);
        return gate * sigmoid(gate) * gate_up.at(row, w + column);
      };
      ASSERT_EQ(compare(out.read(), cpu, GetParam(), kFp32Limit, 1e-3, expected), "") << width;
    }
  }
}

TEST_P(CudaLayer, SwigluBackwardEqualsTheDerivativeAndTheCpuAlsoInPlace) {
  for (const auto& [rows, width] : row_shapes()) {
    for (const std::int64_t gap : {0, 1}) {
      Numbers numbers(11);
      const Matrix gate_up(GetParam(), rows, 2 * width, numbers, 6, gap);
      const Matrix dout(GetParam(), rows, width, numbers, 1, gap);
      const DeviceMatrix in(gate_up, GetParam());
      const DeviceMatrix gradient(dout, GetParam());
      Matrix cpu = gate_up;
      const DeviceMatrix apart(cpu, GetParam());
      SwigluBackward call{GetParam(), cpu.data(),  cpu.pitch(), dout.data(), dout.pitch(),
                          cpu.data(), cpu.pitch(), rows,        width};
      cpu_kernels().swiglu_backward(call, nullptr);
      call.gate_up = in.data();
      call.dout = gradient.data();
      call.dgate_up = apart.data();
      cuda_kernels().swiglu_backward(call, nullptr);
      const auto expected = [&, w = width](std::int64_t row, std::int64_t column) {
        const std::int64_t i = column % w;
        const double g = gate_up.at(row, i);
        const double s = sigmoid(g);
        return column < w ? dout.at(row, i) * gate_up.at(row, w + i) * (s + g * s * (1 - s))
                          : dout.at(row, i) * g * s;
      };
      const Matrix got = apart.read();
      ASSERT_EQ(compare(got, cpu, GetParam(), kFp32Limit, 1, expected), "") << width;
      call.dgate_up = in.data();
      cuda_kernels().swiglu_backward(call, nullptr);
      ASSERT_EQ(in.read(), got) << width;
    }
  }
}

TEST_P(CudaLayer, SwigluBackwardMakesTheProductAgainAlsoOverItsGradient) {
  for (const auto& [rows, width] : row_shapes()) {
    for (const std::int64_t gap : {0, 1}) {
      Numbers numbers(12);
      const Matrix gate_up(GetParam(), rows, 2 * width, numbers, 6, gap);
      const Matrix dout(GetParam(), rows, width, numbers, 1, gap);
      const DeviceMatrix in(gate_up, GetParam());
      const DeviceMatrix want(dout, GetParam());
      cuda_kernels().swiglu_forward(
          {GetParam(), in.data(), in.pitch(), want.data(), want.pitch(), rows, width}, nullptr);
      const DeviceMatrix over(dout, GetParam());
      const DeviceMatrix apart(gate_up, GetParam());
      SwigluBackward call{GetParam(),   in.data(),     in.pitch(), over.data(), over.pitch(),
                          apart.data(), apart.pitch(), rows,       width};
      cuda_kernels().swiglu_backward(call, nullptr);
      const Matrix gradient = apart.read();
      call.out = over.data();
      call.out_pitch = over.pitch();
      cuda_kernels().swiglu_backward(call, nullptr);
      ASSERT_EQ(over.read(), want.read()) << width;
      ASSERT_EQ(apart.read(), gradient) << width;
    }
  }
}

TEST_P(CudaLayer, SwigluSaturatesWithoutNanFarOutside) {
  for (const double gate : {-1e30, -1e4, -100.0, -87.0, 87.0, 100.0, 1e4, 1e30}) {
    Matrix host(GetParam(), 1, 2, 0);
    host.set(0, 0, gate);
    host.set(0, 1, 2);
    Matrix one(GetParam(), 1, 1, 0);
    one.set(0, 0, 3);
    const DeviceMatrix gate_up(host, GetParam());
    const DeviceMatrix dout(one, GetParam());
    const DeviceMatrix out(one, GetParam());
    const DeviceMatrix gradient(host, GetParam());
    cuda_kernels().swiglu_forward({GetParam(), gate_up.data(), 2, out.data(), 1, 1, 1}, nullptr);
    cuda_kernels().swiglu_backward(
        {GetParam(), gate_up.data(), 2, dout.data(), 1, gradient.data(), 2, 1, 1}, nullptr);
    const double rounded = host.at(0, 0);
    EXPECT_NEAR(out.read().at(0, 0), gate < 0 ? 0.0 : 2 * rounded, 1e-6 * std::abs(2 * rounded));
    const Matrix got = gradient.read();
    EXPECT_NEAR(got.at(0, 0), gate < 0 ? 0.0 : 6.0, 1e-6);
    EXPECT_NEAR(got.at(0, 1), gate < 0 ? 0.0 : 3 * rounded, 0.01 * std::abs(3 * rounded));
  }
}

}  // namespace
}  // namespace longhaul::kernels
