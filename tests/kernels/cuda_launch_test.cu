// Errors of launches and arguments of the CUDA table.
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_table.h"

namespace longhaul::kernels::cuda {
namespace {

__global__ void nothing() {}

TEST(CudaLaunch, AnImpossibleBlockIsASystemErrorAndLeavesNoErrorBehind) {
  EXPECT_THROW(launch("nothing", nothing, dim3(1), 4096, nullptr), base::SystemError);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_NO_THROW(launch("nothing", nothing, dim3(1), 32, nullptr));
}

TEST(CudaLaunch, AnErrorNamesTheCall) {
  try {
    check(cudaErrorMemoryAllocation, "rope");
    FAIL() << "no error was thrown";
  } catch (const base::SystemError& error) {
    EXPECT_EQ(error.problems().at(0).where, "rope");
  }
}

TEST(CudaTable, RefusesOtherElementTypes) {
  EXPECT_THROW(cuda_kernels().rope({.dtype = base::Dtype::kFloat16}, nullptr), base::InternalError);
}

TEST(CudaTable, NamesEveryKernel) {
  const KernelTable& table = cuda_kernels();
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

TEST(RowsAligned, LooksAtPointersAndPitches) {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<const void*>(address); };
  EXPECT_TRUE(rows_aligned({{at(256), 8}, {nullptr, 3}}, 2, 2));
  EXPECT_FALSE(rows_aligned({{at(256), 9}}, 2, 2));
  EXPECT_TRUE(rows_aligned({{at(256), 9}}, 1, 2));
  EXPECT_FALSE(rows_aligned({{at(258), 8}}, 1, 2));
  EXPECT_TRUE(rows_aligned({{at(16), 4}}, 2, 4));
  EXPECT_FALSE(rows_aligned({{at(16), 4}}, 2, 2));
}

}  // namespace
}  // namespace longhaul::kernels::cuda
