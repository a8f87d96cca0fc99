// AdamW over the flat fp32 masters of the trained parameters; owns its state's format. Moments are
// fp32, or bf16 with stochastic rounding, whose random numbers depend on the seed, the step, the
// element's place in the masters and the moment alone: every layout and a resumed run draw the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "model/parameters.h"

namespace longhaul::train {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  base::Dtype state_dtype = base::Dtype::kFloat32;  // of both moments; float32 or bfloat16
  std::uint64_t seed = 0;                           // of the rounding of bfloat16 moments
};

class AdamW {
 public:
  /// `parameters` must outlive the optimizer. Moments start at zero.
  AdamW(model::Parameters& parameters, AdamWOptions options);

  /// One update with gradients · `gradient_factor`; decays decaying parameters; refreshes compute
  /// copies.
  void step(double learning_rate, double gradient_factor);

  [[nodiscard]] std::int64_t steps_done() const { return steps_done_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  /// Element type of both moments.
  [[nodiscard]] base::Dtype state_dtype() const { return options_.state_dtype; }
  /// First and second moments of one trained parameter, in its shape (views of the state).
  [[nodiscard]] at::Tensor exp_avg(const model::FlatSegment& segment) const;
  [[nodiscard]] at::Tensor exp_avg_sq(const model::FlatSegment& segment) const;

 private:
  /// Neighbouring segments with equal decay, updated in one call.
  struct Stretch {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool decay = false;
  };

  model::Parameters* parameters_;
  AdamWOptions options_;
  std::vector<Stretch> stretches_;
  std::int64_t steps_done_ = 0;
  at::Tensor exp_avg_;
  at::Tensor exp_avg_sq_;
};

/// Factor by which gradients are multiplied: min(1, max_norm / (norm + 1e-6)); 1 when max_norm is
/// 0.
double clip_factor(double norm, double max_norm);

}  // namespace longhaul::train
