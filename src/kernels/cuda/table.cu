#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda_table.h"

namespace longhaul::kernels {

const KernelTable& cuda_kernels() {
  static const KernelTable table = {.rms_norm_forward = cuda::rms_norm_forward,
                                    .rms_norm_backward = cuda::rms_norm_backward,
                                    .rope = cuda::rope,
                                    .copy_heads = cuda::copy_heads,
                                    .scaled_copies = cuda::scaled_copies,
                                    .swiglu_forward = cuda::swiglu_forward,
                                    .swiglu_backward = cuda::swiglu_backward,
                                    .cross_entropy = cuda::cross_entropy,
                                    .adamw = cuda::adamw,
                                    .dropout = cuda::dropout,
                                    .masked_product = cuda::masked_product,
                                    .masked_a_gradient = cuda::masked_a_gradient,
                                    .masked_x_gradient = cuda::masked_x_gradient,
                                    .uniform_noise = cuda::uniform_noise,
                                    .embedding_gather = cuda::embedding_gather,
                                    .embedding_scatter = cuda::embedding_scatter,
                                    .sum_of_squares = cuda::sum_of_squares};
  return table;
}

}  // namespace longhaul::kernels
