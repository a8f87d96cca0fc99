#include "ops/backend.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::ops {
namespace {

TEST(Backend, OfTheCpuIsBuiltIn) {
  const Backend& cpu = backend_of(at::Device(at::kCPU));
  EXPECT_EQ(cpu.kernels, &kernels::cpu_kernels());
  EXPECT_EQ(cpu.stream(), nullptr);
  EXPECT_GT(cpu.usable_bytes(), std::int64_t{1} << 28);
  EXPECT_EQ(cpu.memory().current_bytes, host_memory().current_bytes);
}

TEST(Backend, OfADeviceThatNobodyRegisteredIsABug) {
  EXPECT_THROW(backend_of(at::Device(at::kCUDA, 0)), base::InternalError);
  EXPECT_THROW(register_backend(at::kCPU, {}), base::InternalError);
}

}  // namespace
}  // namespace longhaul::ops
