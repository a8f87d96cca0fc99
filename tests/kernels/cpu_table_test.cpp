#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/kernel_cases.h"

namespace longhaul::kernels {
namespace {

TEST(CpuTable, NamesEveryKernel) {
  const KernelTable& table = cpu_kernels();
  EXPECT_NE(table.rms_norm_forward, nullptr);
  EXPECT_NE(table.rms_norm_backward, nullptr);
  EXPECT_NE(table.rope, nullptr);
  EXPECT_NE(table.copy_heads, nullptr);
  EXPECT_NE(table.scaled_copies, nullptr);
  EXPECT_NE(table.swiglu_forward, nullptr);
  EXPECT_NE(table.swiglu_backward, nullptr);
  EXPECT_NE(table.cross_entropy, nullptr);
  EXPECT_NE(table.adamw, nullptr);
  EXPECT_NE(table.dropout, nullptr);
  EXPECT_NE(table.uniform_noise, nullptr);
  EXPECT_NE(table.embedding_gather, nullptr);
  EXPECT_NE(table.embedding_scatter, nullptr);
  EXPECT_NE(table.sum_of_squares, nullptr);
}

TEST(CpuTable, IsTheWidestThatTheProcessorRuns) {
  const testing::NamedTable widest = testing::runnable_tables().back();
  EXPECT_EQ(cpu_kernels().rope, widest.table.rope);
  const std::string isa = cpu_kernels_isa();
  EXPECT_EQ(isa, widest.name == "base" ? "baseline" : "x86-64-" + widest.name);
}

TEST(CpuTable, IsChosenOnce) { EXPECT_EQ(&cpu_kernels(), &cpu_kernels()); }

}  // namespace
}  // namespace longhaul::kernels
