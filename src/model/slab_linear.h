// A frozen group of linear layers and its adapters as one matrix, so that LoRA costs a few columns
// of the base products instead of passes of its own.
// Legend: S tokens, K input columns, N output columns of all members, R LoRA columns of all members,
// rounded up to 8.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/linear.h"
#include "model/parameters.h"

namespace longhaul::model {

/// y = [x | u]·[W | scale·B]ᵀ with u = x·Aᵀ, and dx = [dy | du]·[W ; A] with du = dy·scale·B: u and
/// du stand in spare columns behind x and dy (`room()`); matrices without that room are copied. With
/// dropout u = drop(x)·Aᵀ, and dx = dy·W + drop(du·A) in two products. Needs frozen base weights.
class SlabLinear final : public Linear {
 public:
  /// `bias` [N] or undefined.
  SlabLinear(Slab slab, at::Tensor bias, double lora_scale, std::vector<LinearMember> members);

  [[nodiscard]] std::int64_t in_features() const override { return slab_.inputs; }
  [[nodiscard]] std::int64_t out_features() const override { return slab_.outputs; }
  [[nodiscard]] std::int64_t lora_columns() const override;
  [[nodiscard]] std::int64_t room() const override { return slab_.room; }
  [[nodiscard]] bool trained() const override { return true; }
  [[nodiscard]] bool needs_input() const override { return true; }
  [[nodiscard]] bool base_trained() const override { return false; }
  void forward(const at::Tensor& x_SK, const LoraDropout& dropout, const at::Tensor& add_SN,
               const at::Tensor& y_SN, at::Tensor& u_SR) const override;
  [[nodiscard]] at::Tensor lora_input(const at::Tensor& x_SK,
                                      const LoraDropout& dropout) const override;
  [[nodiscard]] at::Tensor lora_gradient(const at::Tensor& dy_SN) const override;
  /// `du_SR` must be what lora_gradient returned for `dy_SN`.
  void input_gradient(const at::Tensor& dy_SN, const at::Tensor& du_SR, const LoraDropout& dropout,
                      const at::Tensor& dx_SK) const override;
  void output_side_gradients(const at::Tensor& dy_SN, const at::Tensor& u_SR,
                             GradSink& sink) const override;
  void lora_a_gradient(const at::Tensor& du_SR, const at::Tensor& x_SK, const LoraDropout& dropout,
                       std::int64_t first_column, GradSink& sink) const override;
  void base_gradient(const at::Tensor& dy_SN, const at::Tensor& x_SK,
                     GradSink& sink) const override;

 private:
  /// A [room, K], zeros below the adapters' rows.
  [[nodiscard]] at::Tensor a() const;

  Slab slab_;
  at::Tensor bias_;
  double lora_scale_;
  std::vector<LinearMember> members_;
};

}  // namespace longhaul::model
