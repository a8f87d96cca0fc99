// Matrix products of a warp, bf16 in, fp32 out (sm_80 and later). Lane = 4·g + t in all of them; all lanes take part.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace longhaul::kernels::cuda {

/// c [16, 8] += a [16, 16] · b [16, 8]. A lane holds pairs of neighbouring k: of a (row g, k 2t), (g + 8, 2t),
/// (g, 2t + 8), (g + 8, 2t + 8); of b (k 2t, column g), (2t + 8, g); of c row g, columns 2t and 2t + 1, then row g + 8.
/// Which k of the caller a position stands for is free as long as a and b agree.
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// An 8 × 8 matrix, of which a lane holds row g, columns 2t and 2t + 1, transposed.
__device__ inline std::uint32_t transpose(std::uint32_t pair) {
  std::uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

/// Element `i` (0 or 1) of two pairs, as a pair.
__device__ inline std::uint32_t pick(std::uint32_t first, std::uint32_t second, int i) {
  return __byte_perm(first, second, i == 0 ? 0x5410 : 0x7632);
}

}  // namespace longhaul::kernels::cuda
