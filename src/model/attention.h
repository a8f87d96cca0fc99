// Attention as a layer sees it: token-local tensors in and out, exchanges and saved slots inside.
// Ulysses here; ring and KV-gather implement the same interface. Legend: S tokens of this rank, T
// tokens of the row, nq / nk this rank's query / KV heads, Hq / Hk the model's, d head size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "config/model_config.h"
#include "dist/ulysses.h"
#include "model/grad_sink.h"
#include "model/row_context.h"
#include "ops/attention.h"

namespace longhaul::model {

/// What the backward pass may keep, head-local only. `qkv` holds q, k after RoPE, or before q/k
/// norm where the model has one (norm and RoPE are element-wise and re-run).
struct AttentionSlots {
  at::Tensor qkv;  // [T, (nq + 2 nk)·d]
  at::Tensor out;  // [T, nq·d]
  at::Tensor lse;  // [T, nq] fp32
};

/// Weights of the q/k norms of one layer; undefined when the model has none. Parameter numbers are
/// −1 when frozen.
struct QkNormWeights {
  at::Tensor q;
  at::Tensor k;
  std::int64_t q_param = -1;
  std::int64_t k_param = -1;
};

using dist::LocalRows;
/// Makes [rows, columns] of a projection.
using MakeRows = std::function<at::Tensor(LocalRows rows)>;
/// Uses [rows, columns] as soon as they are there.
using UseRows = std::function<void(LocalRows rows, const at::Tensor& values)>;

/// What the backward pass of attention is made between. Work goes in where an exchange travels.
struct AttentionGradients {
  MakeRows make_dout;  // d(output) [rows, Hq·d]
  at::Tensor du{};     // [S, R] that travels with it; may be undefined
  std::function<void(const at::Tensor& du)> use_du;  // [T, R]: of all ranks, when du is defined
  dist::Beside beside{};                             // d(output) travels: what needs none of it
  UseRows use_dqkv;  // d(qkv) [rows, (Hq + 2 Hk)·d]: what the layer below waits for
  std::function<void(const at::Tensor& dqkv)> after_dqkv;  // all rows of it
  dist::Beside before_use{};                               // d(qkv) travels
  std::int64_t dqkv_room = 0;  // spare columns that use_dqkv likes behind the rows (ops/room.h)
};

class Attention {
 public:
  Attention() = default;
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;
  virtual ~Attention() = default;

  /// Tells how the next row is cut over the ranks. Local.
  virtual void set_row(const RowContext& context) = 0;

  /// qkv [rows, (Hq + 2 Hk)·d] before norm and RoPE, as `make` makes it part by part in the type of `like` →
  /// slots.qkv. Collective; what is made may be overwritten.
  virtual void load_qkv(const MakeRows& make, const at::Tensor& like, const QkNormWeights& norm,
                        const RowContext& context, AttentionSlots& slots) = 0;
  /// slots.qkv → slots.out, slots.lse. Local.
  virtual void attend(const QkNormWeights& norm, const RowContext& context,
                      AttentionSlots& slots) = 0;
  /// slots.out → [S, Hq·d], part by part for `use`; `room` as AttentionGradients::dqkv_room. Collective.
  virtual void token_local_output(const AttentionSlots& slots, std::int64_t room,
                                  const UseRows& use) = 0;
  /// d(output) → d(qkv), both part by part; adds q/k norm gradients. Collective; consumes the slots.
  virtual void backward(const AttentionGradients& gradients, const at::Tensor& like,
                        const QkNormWeights& norm, const RowContext& context, AttentionSlots& slots,
                        GradSink& sink) = 0;
  /// The columns of the model's [·, Hq·d] attention output that slots.out holds.
  [[nodiscard]] virtual config::Range output_columns() const = 0;
};

/// DeepSpeed-Ulysses over the ranks of `exchange`; with one rank nothing is exchanged.
class UlyssesAttention final : public Attention {
 public:
  /// `exchange` must outlive this object.
  UlyssesAttention(const config::ModelConfig& model, dist::UlyssesExchange& exchange);

  /// Computes attention in `groups` groups of whole KV heads (ops::AttentionShape); more than this
  /// rank's KV heads are as many as it has. For all rows that follow.
  void set_head_groups(std::int64_t groups);
  /// For all rows that follow.
  void set_rehearsal(const ops::AttentionRehearsal& rehearsal) { shape_.rehearsal = rehearsal; }
  /// For all rows that follow; on GPUs.
  void set_kernels(ops::AttentionKernels kernels) { shape_.kernels = kernels; }
  void set_row(const RowContext& context) override;
  void load_qkv(const MakeRows& make, const at::Tensor& like, const QkNormWeights& norm,
                const RowContext& context, AttentionSlots& slots) override;
  void attend(const QkNormWeights& norm, const RowContext& context, AttentionSlots& slots) override;
  void token_local_output(const AttentionSlots& slots, std::int64_t room,
                          const UseRows& use) override;
  void backward(const AttentionGradients& gradients, const at::Tensor& like,
                const QkNormWeights& norm, const RowContext& context, AttentionSlots& slots,
                GradSink& sink) override;
  [[nodiscard]] config::Range output_columns() const override;

 private:
  /// Columns of q and of k in slots.qkv.
  [[nodiscard]] at::Tensor q_of(const at::Tensor& qkv) const;
  [[nodiscard]] at::Tensor k_of(const at::Tensor& qkv) const;
  /// q, k as attention uses them: slots.qkv itself, or a normalised and rotated copy with q/k norm.
  [[nodiscard]] at::Tensor ready_qkv(const QkNormWeights& norm, const RowContext& context,
                                     const AttentionSlots& slots) const;
  /// What the exchange rotates by on the way: nothing with q/k norm, whose result RoPE works on.
  [[nodiscard]] static ops::RopeTable rotation(const QkNormWeights& norm,
                                               const RowContext& context);
  /// d(q or k) after the norm → before it, in place.
  void undo_norm(const at::Tensor& gradient, const at::Tensor& raw, const at::Tensor& weight,
                 std::int64_t param, GradSink& sink) const;

  const config::ModelConfig* model_;
  dist::UlyssesExchange* exchange_;
  ops::AttentionShape shape_;
};

}  // namespace longhaul::model
