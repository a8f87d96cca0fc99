// The border between libtorch tensors and the row-wise kernels: checks, then one kernel call.
// Legend: S tokens, W columns. Every tensor argument is [S, W] with unit stride along W and any row
// pitch, in float32 or bfloat16 (what copy_heads only moves: any), on one device; InternalError names
// the argument that is not. Spans are the host's; a GPU gets a copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace longhaul::ops {

/// y = rms_norm(x)·weight per group of weight.numel() columns; returns rstd [S, groups] fp32. `y`
/// undefined: only rstd.
at::Tensor rms_norm(const at::Tensor& x_SW, const at::Tensor& weight_W, double eps,
                    const at::Tensor& y_SW);

/// Writes d(x) (+ `add` when defined) into `dx` (may be dy or add); adds d(weight) to fp32
/// `dweight` when defined.
void rms_norm_backward(const at::Tensor& dy_SW, const at::Tensor& x_SW, const at::Tensor& weight_W,
                       const at::Tensor& rstd_SG, const at::Tensor& add_SW, const at::Tensor& dx_SW,
                       const at::Tensor& dweight_W);

/// Cosines and sines [S, head_dim/2] fp32 of the rotary angles.
struct RopeTable {
  at::Tensor cosine;
  at::Tensor sine;
};
RopeTable make_rope_table(std::span<const std::int32_t> positions,
                          std::span<const float> inverse_frequencies, at::Device device = at::kCPU);

enum class RopeDirection { kForward, kInverse };
/// Rotates the heads of x [S, heads·head_dim] in place.
void rope(const at::Tensor& x_SW, const RopeTable& table, std::int64_t head_dim,
          RopeDirection direction);

/// Columns of heads on their way. What `to` covers is not read by any copy of the call, nor written
/// by another.
struct HeadCopy {
  at::Tensor from;
  at::Tensor to;
  bool rotated = false;
};
/// Carries out all copies in one pass over their columns; those that are `rotated` arrive as rope()
/// would leave them, with its very bits.
///
/// Shapes  from and to [S, columns]; copies may differ in columns, not in S. Rotated: whole heads,
///         `table` [S, head_dim/2]. Without rotated copies table and head_dim are not looked at.
/// Types   one for the whole call: any of 2, 4 or 8 bytes; rotated: float32 or bfloat16
/// Errors  InternalError names the argument that does not fit
void copy_heads(std::span<const HeadCopy> copies, std::int64_t head_dim = 0,
                const RopeTable& table = {}, RopeDirection direction = RopeDirection::kForward);

/// Values on their way into a matrix of another type or pitch. What `to` covers is not read by any
/// copy of the call, nor written by another.
struct ScaledCopy {
  at::Tensor from;
  at::Tensor to;
  double scale = 1;
};
/// to = scale·from for all copies in a few launches: the product of fp32 numbers, rounded once.
///
/// Shapes  from and to [R, C] of any R and C, which copies need not share
/// Types   from: float32; to: float32 or bfloat16, one for the whole call
/// Errors  InternalError names the argument that does not fit
void scaled_copies(std::span<const ScaledCopy> copies);

/// out [S, F] = silu(gate)·up of gate_up [S, 2F].
void swiglu(const at::Tensor& gate_up, const at::Tensor& out);
/// d(gate_up), which may be written over gate_up itself; `out`, when defined, gets what swiglu() made and may be dout.
void swiglu_backward(const at::Tensor& dout, const at::Tensor& gate_up, const at::Tensor& dgate_up,
                     const at::Tensor& out = {});

/// Cross-entropy of a tile of logits: sums over its rows.
struct TileLoss {
  double loss_sum = 0;
  std::int64_t correct = 0;
};
/// With `gradient_scale` ≠ 0 replaces the logits by their scaled gradient. Sums run in row order in
/// fp64.
TileLoss cross_entropy(const at::Tensor& logits_SV, std::span<const std::int32_t> labels,
                       double gradient_scale);

/// out[i] = table[ids[i]].
void embedding_gather(const at::Tensor& table_VW, std::span<const std::int32_t> ids,
                      const at::Tensor& out_SW);
/// dtable (fp32) [ids[i]] += dout[i].
void embedding_scatter(const at::Tensor& dout_SW, std::span<const std::int32_t> ids,
                       const at::Tensor& dtable_VW);

/// Addresses the masks of a set of rows: one 64-bit key per row and one for (seed, epoch, layer,
/// input).
struct DropoutKeys {
  std::span<const std::uint64_t> row_keys;
  /// The same [rows] on the device, as int64; undefined: copied there by each call, which waits for the device.
  at::Tensor on_device{};
  std::uint64_t seed_key = 0;
  float probability = 0;
};
/// Row keys as DropoutKeys::on_device wants them: themselves on the CPU, a copy elsewhere.
at::Tensor keys_on_device(std::span<const std::uint64_t> row_keys, at::Device device);
/// The same of `keys`: on_device where it is defined.
at::Tensor keys_on_device(const DropoutKeys& keys, at::Device device);
enum class DropoutOutput { kWrite, kAccumulate };
/// y = (or +=) x·mask/(1 − p); columns of x are numbered from `first_column` in the mask.
void dropout(const at::Tensor& x_SW, const at::Tensor& y_SW, const DropoutKeys& keys,
             std::int64_t first_column, DropoutOutput output);

/// x[i] += uniform(−1, 1)·magnitude[i].
void add_uniform_noise(const at::Tensor& x_SW, std::span<const std::uint64_t> row_keys,
                       std::span<const float> magnitude, std::uint64_t seed_key);

}  // namespace longhaul::ops
