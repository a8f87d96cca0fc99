// The element-wise and row-wise kernels of a training step as raw-pointer launchers: one table per
// device, one signature for all of them. The CPU table is also the reference for the device tables.
// No torch here. Shape legend: rows = tokens; pitch = elements between consecutive rows; all
// pointers of one call have the call's element type unless a type is written out. Every kernel is
// deterministic and accepts rows = 0.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace longhaul::kernels {

/// Opaque device stream; null on the CPU.
using Stream = void*;

/// y = x · rsqrt(mean(x²) + eps) · weight over `width` elements. A row may hold `groups`
/// neighbouring groups that are normalised on their own (q/k norm over heads). `rstd` [rows,
/// groups] is written; y may be null or alias x.
struct RmsNormForward {
  base::Dtype dtype = base::Dtype::kFloat32;
  const void* x = nullptr;
  std::int64_t x_pitch = 0;
  const void* weight = nullptr;
  void* y = nullptr;
  std::int64_t y_pitch = 0;
  float* rstd = nullptr;
  std::int64_t rows = 0;
  std::int64_t groups = 1;
  std::int64_t width = 0;
  float eps = 0;
};

/// dx = rstd · (weight·dy − x̂ · mean(weight·dy·x̂)) [+ add]; `dweight` (fp32, accumulated) may be
/// null. dx may alias dy or add.
struct RmsNormBackward {
  base::Dtype dtype = base::Dtype::kFloat32;
  const void* x = nullptr;
  std::int64_t x_pitch = 0;
  const void* weight = nullptr;
  const float* rstd = nullptr;
  const void* dy = nullptr;
  std::int64_t dy_pitch = 0;
  const void* add = nullptr;
  std::int64_t add_pitch = 0;
  void* dx = nullptr;
  std::int64_t dx_pitch = 0;
  float* dweight = nullptr;
  std::int64_t rows = 0;
  std::int64_t groups = 1;
  std::int64_t width = 0;
};

/// Rotates x [rows, heads, head_dim] in place, pairs (i, i + head_dim/2), by the angles whose
/// cosines and sines stand in `cosine`, `sine` [rows, head_dim/2]; `inverse` rotates back (the
/// adjoint).
struct Rope {
  base::Dtype dtype = base::Dtype::kFloat32;
  void* x = nullptr;
  std::int64_t pitch = 0;
  const float* cosine = nullptr;
  const float* sine = nullptr;
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  bool inverse = false;
};

/// Columns on their way from the rows of one matrix to those of another.
struct HeadSegment {
  const void* from = nullptr;
  std::int64_t from_pitch = 0;
  void* to = nullptr;
  std::int64_t to_pitch = 0;
  std::int64_t columns = 0;
  bool rotated = false;  // the columns are whole heads then
};

/// Copies every segment, any number of them: bit for bit or, where it is rotated, with the bits that
/// Rope gives with the same angles. What a segment writes is neither read nor written by any other
/// and does not overlap what it reads. `cosine`, `sine` and `head_dim` matter to rotated segments
/// alone.
struct CopyHeads {
  base::Dtype dtype = base::Dtype::kFloat32;
  const HeadSegment* segments = nullptr;
  std::int64_t num_segments = 0;
  const float* cosine = nullptr;
  const float* sine = nullptr;
  std::int64_t rows = 0;
  std::int64_t head_dim = 0;
  bool inverse = false;
};

/// A fp32 matrix on its way to another of any pitch, times a factor.
struct ScaledSegment {
  const float* from = nullptr;
  std::int64_t from_pitch = 0;
  void* to = nullptr;
  std::int64_t to_pitch = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float scale = 1;
};

/// to = scale · from for every segment, any number of them: the product in fp32, rounded to `dtype`,
/// which is that of all targets, to nearest even. What a segment writes is neither read nor written
/// by any other and does not overlap what it reads.
struct ScaledCopies {
  base::Dtype dtype = base::Dtype::kFloat32;
  const ScaledSegment* segments = nullptr;
  std::int64_t num_segments = 0;
};

/// out = silu(gate) · up, gate_up = [rows, gate | up] with `width` columns each.
struct SwigluForward {
  base::Dtype dtype = base::Dtype::kFloat32;
  const void* gate_up = nullptr;
  std::int64_t gate_up_pitch = 0;
  void* out = nullptr;
  std::int64_t out_pitch = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

/// d(gate_up) from d(out); may alias gate_up. With `out`, the product again in the bits of the forward pass; may alias dout.
struct SwigluBackward {
  base::Dtype dtype = base::Dtype::kFloat32;
  const void* gate_up = nullptr;
  std::int64_t gate_up_pitch = 0;
  const void* dout = nullptr;
  std::int64_t dout_pitch = 0;
  void* dgate_up = nullptr;
  std::int64_t dgate_up_pitch = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  void* out = nullptr;  // null: not wanted
  std::int64_t out_pitch = 0;
};

/// Per row: loss = logsumexp(logits) − logits[label], `correct` = arg-max (first of equals) is the
/// label; with `gradient_scale` ≠ 0 the logits are replaced by (softmax − onehot) · gradient_scale.
/// Labels are all valid.
struct CrossEntropy {
  base::Dtype dtype = base::Dtype::kFloat32;
  void* logits = nullptr;
  std::int64_t pitch = 0;
  const std::int32_t* labels = nullptr;
  double* row_loss = nullptr;
  std::uint8_t* correct = nullptr;
  std::int64_t rows = 0;
  std::int64_t vocab = 0;
  float gradient_scale = 0;
};

/// One AdamW step on `count` fp32 values: decoupled decay, bias corrections 1 − βᵗ given by the
/// caller; the gradient is multiplied by `gradient_factor` (clipping) first. `copy` (may be null)
/// receives the new weights in `copy_dtype`. Moments are stored in `moment_dtype`, float32 or
/// bfloat16; bfloat16 ones are rounded stochastically (stochastic_round.h) after the weight has been
/// updated from their fp32 values. What is drawn depends on `rounding_key`, the place of the element
/// in the flat masters (`first_element` is that of weight[0]) and which moment it is, alone.
struct AdamW {
  float* weight = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  base::Dtype moment_dtype = base::Dtype::kFloat32;
  std::uint64_t rounding_key = 0;
  std::int64_t first_element = 0;
  const float* gradient = nullptr;
  void* copy = nullptr;
  base::Dtype copy_dtype = base::Dtype::kFloat32;
  std::int64_t count = 0;
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  double bias_correction1 = 1;
  double bias_correction2 = 1;
  float gradient_factor = 1;
};

/// y = x · mask / (1 − probability): element (row, column) is kept or dropped by the counter
/// (row_keys[row], first_column + column) under `seed_key` alone. y may alias x; `add` ≠ 0 adds to
/// y instead.
struct Dropout {
  base::Dtype dtype = base::Dtype::kFloat32;
  const void* x = nullptr;
  std::int64_t x_pitch = 0;
  void* y = nullptr;
  std::int64_t y_pitch = 0;
  const std::uint64_t* row_keys = nullptr;
  std::uint64_t seed_key = 0;
  std::int64_t first_column = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  float probability = 0;
  bool add = false;
};

/// LoRA's narrow products of an input under dropout, without a masked copy of it; u = drop(x)·aᵀ and its adjoints.
/// bfloat16, summed in fp32; drop() and its counters as Dropout.
struct MaskedProduct {
  void* x = nullptr;  // [rows, width]
  std::int64_t x_pitch = 0;
  void* u = nullptr;  // [rows, rank]
  std::int64_t u_pitch = 0;
  void* a = nullptr;  // [rank, width]
  std::int64_t a_pitch = 0;
  const std::uint64_t* row_keys = nullptr;
  std::uint64_t seed_key = 0;
  std::int64_t first_column = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t rank = 0;
  float probability = 0;
};
constexpr std::int64_t kMaskedStrip = 64;     // a width is so many columns times a number
constexpr std::int64_t kMaskedTile = 8;       // a rank is so many times a number
constexpr std::int64_t kMostMaskedRank = 64;  // at most
/// Whether there are kernels for this shape: width and rank as above, an even first column, and all rows of the three
/// matrices on 16-byte borders.
inline bool takes_masked_product(const MaskedProduct& a) {
  constexpr std::int64_t kPack = 8;  // elements of 16 bytes
  const auto is_aligned = [](const void* data, std::int64_t pitch) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && pitch % kPack == 0;
  };
  return a.width > 0 && a.width % kMaskedStrip == 0 && a.rank > 0 && a.rank % kMaskedTile == 0 &&
         a.rank <= kMostMaskedRank && a.first_column % 2 == 0 && is_aligned(a.x, a.x_pitch) &&
         is_aligned(a.u, a.u_pitch) && is_aligned(a.a, a.a_pitch);
}

/// x += uniform(−1, 1) · magnitude[row], element (row, column) drawn by the counter (row_keys[row],
/// column).
struct UniformNoise {
  base::Dtype dtype = base::Dtype::kFloat32;
  void* x = nullptr;
  std::int64_t pitch = 0;
  const std::uint64_t* row_keys = nullptr;
  const float* magnitude = nullptr;
  std::uint64_t seed_key = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

/// out[row] = table[ids[row]].
struct EmbeddingGather {
  base::Dtype dtype = base::Dtype::kFloat32;
  const void* table = nullptr;
  const std::int32_t* ids = nullptr;
  void* out = nullptr;
  std::int64_t out_pitch = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

/// dtable[ids[row]] += dout[row], in row order (fp32).
struct EmbeddingScatter {
  base::Dtype dtype = base::Dtype::kFloat32;
  const void* dout = nullptr;
  std::int64_t dout_pitch = 0;
  const std::int32_t* ids = nullptr;
  float* dtable = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

/// The kernels of one device.
struct KernelTable {
  void (*rms_norm_forward)(const RmsNormForward&, Stream) = nullptr;
  void (*rms_norm_backward)(const RmsNormBackward&, Stream) = nullptr;
  void (*rope)(const Rope&, Stream) = nullptr;
  void (*copy_heads)(const CopyHeads&, Stream) = nullptr;
  void (*scaled_copies)(const ScaledCopies&, Stream) = nullptr;
  void (*swiglu_forward)(const SwigluForward&, Stream) = nullptr;
  void (*swiglu_backward)(const SwigluBackward&, Stream) = nullptr;
  void (*cross_entropy)(const CrossEntropy&, Stream) = nullptr;
  void (*adamw)(const AdamW&, Stream) = nullptr;
  void (*dropout)(const Dropout&, Stream) = nullptr;
  /// u = drop(x)·aᵀ; a (fp32) += uᵀ·drop(x); x += drop(u·a). Absent on the CPU, where masked copies go to the BLAS.
  void (*masked_product)(const MaskedProduct&, Stream) = nullptr;
  void (*masked_a_gradient)(const MaskedProduct&, Stream) = nullptr;
  void (*masked_x_gradient)(const MaskedProduct&, Stream) = nullptr;
  void (*uniform_noise)(const UniformNoise&, Stream) = nullptr;
  void (*embedding_gather)(const EmbeddingGather&, Stream) = nullptr;
  void (*embedding_scatter)(const EmbeddingScatter&, Stream) = nullptr;
  /// Sum of squares in fp64, in an order that depends on `count` alone; waits for the stream.
  double (*sum_of_squares)(const float* values, std::int64_t count, Stream) = nullptr;
};

/// The CPU kernels for this processor (the best of the instruction sets that were built).
const KernelTable& cpu_kernels();
/// Name of the instruction set chosen: x86-64-v4, x86-64-v3 or baseline.
const char* cpu_kernels_isa();

}  // namespace longhaul::kernels
