#include "ops/backend.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

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

int num_copies = 0;  // NOLINT: counted by a function without a state of its own

void copy_and_count(void* to, const void* from, std::int64_t bytes) {
  ++num_copies;
  std::memmove(to, from, static_cast<std::size_t>(bytes));
}

TEST(Backend, CopiesThroughTheGpusOnceItIsRegistered) {
  const std::array<float, 3> from{1, 2, 3};
  std::array<float, 3> to{};
  copy_bytes(to.data(), from.data(), sizeof(from));
  EXPECT_EQ(to, from);
  register_backend(at::kCUDA, {.copy_bytes = copy_and_count});
  to = {};
  copy_bytes(to.data(), from.data(), sizeof(from));
  EXPECT_EQ(to, from);
  EXPECT_EQ(num_copies, 1);
  copy_bytes(to.data(), to.data(), sizeof(to));
  copy_bytes(nullptr, nullptr, 0);
  EXPECT_EQ(num_copies, 1);
}

}  // namespace
}  // namespace longhaul::ops
