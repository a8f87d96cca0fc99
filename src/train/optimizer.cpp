#include "train/optimizer.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "ops/backend.h"

namespace longhaul::train {

AdamW::AdamW(model::Parameters& parameters, AdamWOptions options)
    : parameters_(&parameters),
      options_(options),
      exp_avg_(at::zeros_like(parameters.flat_masters())),
      exp_avg_sq_(at::zeros_like(parameters.flat_masters())) {}

void AdamW::step(double learning_rate, double gradient_factor) {
  ++steps_done_;
  const auto t = static_cast<double>(steps_done_);
  kernels::AdamW args{.learning_rate = learning_rate,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .epsilon = options_.epsilon,
                      .bias_correction1 = 1.0 - std::pow(options_.beta1, t),
                      .bias_correction2 = 1.0 - std::pow(options_.beta2, t),
                      .gradient_factor = static_cast<float>(gradient_factor)};
  auto* weight = parameters_->flat_masters().data_ptr<float>();
  const auto* gradient = parameters_->flat_gradients().data_ptr<float>();
  auto* exp_avg = exp_avg_.data_ptr<float>();
  auto* exp_avg_sq = exp_avg_sq_.data_ptr<float>();
  const ops::Backend& device = ops::backend_of(parameters_->flat_masters());
  for (const model::FlatSegment& segment : parameters_->segments()) {
    args.weight = weight + segment.offset;
    args.exp_avg = exp_avg + segment.offset;
    args.exp_avg_sq = exp_avg_sq + segment.offset;
    args.gradient = gradient + segment.offset;
    args.count = segment.count;
    args.weight_decay = segment.decay ? options_.weight_decay : 0.0;
    device.kernels->adamw(args, device.stream());
  }
  parameters_->refresh_compute();
}

at::Tensor AdamW::exp_avg(const model::FlatSegment& segment) const {
  return exp_avg_.narrow(0, segment.offset, segment.count)
      .view(parameters_->registry()[static_cast<std::size_t>(segment.param)].shape);
}

at::Tensor AdamW::exp_avg_sq(const model::FlatSegment& segment) const {
  return exp_avg_sq_.narrow(0, segment.offset, segment.count)
      .view(parameters_->registry()[static_cast<std::size_t>(segment.param)].shape);
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace longhaul::train
