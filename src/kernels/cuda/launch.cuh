// The host side of a launch: errors as exceptions, dispatch on the element type, and the question
// whether rows may be read 16 bytes at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "base/dtype.h"
#include "base/error.h"
#include "kernels/cuda/element.cuh"
#include "kernels/kernel_table.h"

namespace longhaul::kernels::cuda {

/// Throws SystemError unless `status` is success; `what` names the call.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) {
    return;
  }
  (void)cudaGetLastError();  // or the next caller, of another library perhaps, would report it
  throw base::SystemError({.where = what, .what = cudaGetErrorString(status)});
}

inline cudaStream_t stream_of(Stream stream) { return static_cast<cudaStream_t>(stream); }

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Starts `kernel` on `stream` with blocks of `threads`; grid limits are the caller's affair.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, unsigned threads,
            Stream stream, const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = stream_of(stream);
  check(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

/// Calls `run` with a value of the element type of `dtype`.
template <typename Run>
void dispatch(base::Dtype dtype, const Run& run) {
  if (dtype == base::Dtype::kBFloat16) {
    run(BFloat16{});
    return;
  }
  LONGHAUL_ASSERT(dtype == base::Dtype::kFloat32, "kernels take float32 or bfloat16");
  run(float{});
}

/// A matrix argument: null, or rows of `pitch` elements.
struct Operand {
  const void* data;
  std::int64_t pitch;
};

/// Every row of every operand begins on a 16-byte border.
inline bool rows_aligned(std::initializer_list<Operand> operands, std::int64_t rows,
                         std::size_t element_bytes) {
  for (const Operand& operand : operands) {
    const bool first = reinterpret_cast<std::uintptr_t>(operand.data) % 16 == 0;
    const bool others =
        rows <= 1 || static_cast<std::size_t>(operand.pitch) * element_bytes % 16 == 0;
    if (operand.data != nullptr && !(first && others)) {
      return false;
    }
  }
  return true;
}

}  // namespace longhaul::kernels::cuda
