// The launchers of this folder, one for each entry of KernelTable; kernel_table.h has their meaning.
#pragma once

#include "kernels/kernel_table.h"

namespace longhaul::kernels::cuda {

/// Order of the sum of a group: by width and element type alone.
void rms_norm_forward(const RmsNormForward& a, Stream stream);
/// Partial sums of dweight lie in scratch memory; their order depends on shape and type alone.
void rms_norm_backward(const RmsNormBackward& a, Stream stream);
/// Element-wise.
void rope(const Rope& a, Stream stream);
/// Element-wise; up to 32 segments in a launch.
void copy_heads(const CopyHeads& a, Stream stream);
/// Element-wise; up to 64 segments in a launch. The bits of the CPU's.
void scaled_copies(const ScaledCopies& a, Stream stream);
/// Element-wise.
void swiglu_forward(const SwigluForward& a, Stream stream);
/// Element-wise.
void swiglu_backward(const SwigluBackward& a, Stream stream);
/// One block for each row; order of its sum: by vocabulary and element type alone.
void cross_entropy(const CrossEntropy& a, Stream stream);
/// Element-wise.
void adamw(const AdamW& a, Stream stream);
/// The same mask as on the CPU.
void dropout(const Dropout& a, Stream stream);
/// A block for each 32 rows; order of its sums: by width alone.
void masked_product(const MaskedProduct& a, Stream stream);
/// Partial sums lie in scratch memory: 64 MiB or one a; their order depends on the shape alone.
void masked_a_gradient(const MaskedProduct& a, Stream stream);
/// Every element of x by one thread.
void masked_x_gradient(const MaskedProduct& a, Stream stream);
/// The same numbers as on the CPU.
void uniform_noise(const UniformNoise& a, Stream stream);
/// Copies bits.
void embedding_gather(const EmbeddingGather& a, Stream stream);
/// Sorts the rows by id in scratch memory; the sums have the bits of the CPU's.
void embedding_scatter(const EmbeddingScatter& a, Stream stream);
/// Partial sums lie in scratch memory; waits for the stream.
double sum_of_squares(const float* values, std::int64_t count, Stream stream);

}  // namespace longhaul::kernels::cuda
