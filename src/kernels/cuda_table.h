// The kernels of a CUDA device behind the common table. Free of torch and of CUDA headers, so that
// host code can include it.
#pragma once

#include "kernels/kernel_table.h"

namespace longhaul::kernels {

/// The CUDA kernels. All pointers of a call are device pointers and `Stream` is a cudaStream_t of
/// the current device; nothing but sum_of_squares waits for it. A failed launch or allocation is a
/// base::SystemError.
const KernelTable& cuda_kernels();

}  // namespace longhaul::kernels
