// The linear layers that share one input, as one matrix product, with their LoRA adapters.
// Legend: S tokens, K input columns, N output columns of all members together, R LoRA columns of
// all members together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/shapes.h"
#include "model/grad_sink.h"
#include "ops/rows.h"

namespace longhaul::model {

/// One checkpoint module inside a group: its output columns, LoRA columns and parameter numbers
/// (−1: absent).
struct LinearMember {
  config::Range outputs;
  config::Range lora_columns;  // empty: no adapter
  at::Tensor lora_b;           // [outputs, r]
  std::int64_t weight = -1;
  std::int64_t bias = -1;
  std::int64_t lora_a_param = -1;
  std::int64_t lora_b_param = -1;
  bool weight_trained = false;
  bool bias_trained = false;
};

/// Mask addresses of the group's LoRA input; absent when LoRA dropout is 0 or in evaluation.
using LoraDropout = std::optional<ops::DropoutKeys>;

/// d(B) and d(bias) of every member of a group: scale·dyᵀ·u and the sum of dy over the tokens.
void add_output_side_gradients(std::span<const LinearMember> members, double lora_scale,
                               const at::Tensor& dy_SN, const at::Tensor& u_SR, GradSink& sink);

/// Tells that d(A) of every member of a group has all rows.
void finish_lora_a(std::span<const LinearMember> members, GradSink& sink);

/// What a layer needs of a group of linear layers. Implementations differ in how base and adapter
/// are multiplied.
class Linear {
 public:
  Linear() = default;
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;
  virtual ~Linear() = default;

  [[nodiscard]] virtual std::int64_t in_features() const = 0;
  [[nodiscard]] virtual std::int64_t out_features() const = 0;
  [[nodiscard]] virtual std::int64_t lora_columns() const = 0;
  /// Spare columns that the group likes to find behind the rows of x and dy (ops/room.h).
  [[nodiscard]] virtual std::int64_t room() const { return 0; }
  /// Any parameter of the group is trained.
  [[nodiscard]] virtual bool trained() const = 0;
  /// Weight gradients need the input itself (a trained base weight or LoRA A).
  [[nodiscard]] virtual bool needs_input() const = 0;
  /// A base weight of the group is trained.
  [[nodiscard]] virtual bool base_trained() const = 0;

  /// y [S, N] = add + x·Wᵀ + bias + scale·u·Bᵀ with u [S, R] = drop(x)·Aᵀ; `add` [S, N] may be undefined. A defined `u` of
  /// the right shape is reused as it is (a re-run); an undefined one is computed and returned through it.
  virtual void forward(const at::Tensor& x_SK, const LoraDropout& dropout, const at::Tensor& add_SN,
                       const at::Tensor& y_SN, at::Tensor& u_SR) const = 0;
  /// u alone, with the bits that forward() makes of equal buffers; undefined without adapters.
  [[nodiscard]] virtual at::Tensor lora_input(const at::Tensor& x_SK,
                                              const LoraDropout& dropout) const = 0;
  /// du [S, R] = scale·dy·B; undefined without adapters.
  [[nodiscard]] virtual at::Tensor lora_gradient(const at::Tensor& dy_SN) const = 0;
  /// dx [S, K] = dy·W + drop(du·A).
  virtual void input_gradient(const at::Tensor& dy_SN, const at::Tensor& du_SR,
                              const LoraDropout& dropout, const at::Tensor& dx_SK) const = 0;
  /// d(B) and d(bias): what needs no input.
  virtual void output_side_gradients(const at::Tensor& dy_SN, const at::Tensor& u_SR,
                                     GradSink& sink) const = 0;
  /// Columns [first, first + x.columns) of d(A) += duᵀ·drop(x); the caller may hold other rows than
  /// S.
  virtual void lora_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK,
                               const LoraDropout& dropout, std::int64_t first_column,
                               GradSink& sink) const = 0;
  /// d(W) += dyᵀ·x for trained base weights.
  virtual void base_gradient(const at::Tensor& dy_SN, const at::Tensor& x_SK,
                             GradSink& sink) const = 0;
};

/// Base product first, adapters in separate passes: works for every store, type and dropout.
class SeparateLinear final : public Linear {
 public:
  /// `w` [N, K]; `bias` [N] or undefined; `lora_a` [R, K] or undefined.
  SeparateLinear(at::Tensor w, at::Tensor bias, at::Tensor lora_a, double lora_scale,
                 std::vector<LinearMember> members);

  [[nodiscard]] std::int64_t in_features() const override { return w_.size(1); }
  [[nodiscard]] std::int64_t out_features() const override { return w_.size(0); }
  [[nodiscard]] std::int64_t lora_columns() const override {
    return lora_a_.defined() ? lora_a_.size(0) : 0;
  }
  [[nodiscard]] bool trained() const override;
  [[nodiscard]] bool needs_input() const override;
  [[nodiscard]] bool base_trained() const override;
  void forward(const at::Tensor& x_SK, const LoraDropout& dropout, const at::Tensor& add_SN,
               const at::Tensor& y_SN, at::Tensor& u_SR) const override;
  [[nodiscard]] at::Tensor lora_input(const at::Tensor& x_SK,
                                      const LoraDropout& dropout) const override;
  [[nodiscard]] at::Tensor lora_gradient(const at::Tensor& dy_SN) const override;
  void input_gradient(const at::Tensor& dy_SN, const at::Tensor& du_SR, const LoraDropout& dropout,
                      const at::Tensor& dx_SK) const override;
  void output_side_gradients(const at::Tensor& dy_SN, const at::Tensor& u_SR,
                             GradSink& sink) const override;
  void lora_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK, const LoraDropout& dropout,
                       std::int64_t first_column, GradSink& sink) const override;
  void base_gradient(const at::Tensor& dy_SN, const at::Tensor& x_SK,
                     GradSink& sink) const override;

 private:
  at::Tensor w_;
  at::Tensor bias_;
  at::Tensor lora_a_;
  double lora_scale_;
  std::vector<LinearMember> members_;
};

}  // namespace longhaul::model
