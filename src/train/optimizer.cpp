#include "train/optimizer.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/error.h"
#include "base/rng.h"
#include "ops/backend.h"
#include "ops/scalar_type.h"
#include "ops/step_clock.h"

namespace longhaul::train {
namespace {

at::Tensor zero_moments(const at::Tensor& masters, base::Dtype dtype) {
  LONGHAUL_ASSERT(dtype == base::Dtype::kFloat32 || dtype == base::Dtype::kBFloat16,
                  "moments are float32 or bfloat16");
  return at::zeros_like(masters, masters.options().dtype(ops::torch_type(dtype)));
}

/// Address of an element of a flat tensor of any type.
void* element(const at::Tensor& flat, std::int64_t index) {
  return static_cast<std::byte*>(flat.data_ptr()) +
         index * static_cast<std::int64_t>(flat.element_size());
}

}  // namespace

AdamW::AdamW(model::Parameters& parameters, AdamWOptions options)
    : parameters_(&parameters),
      options_(options),
      exp_avg_(zero_moments(parameters.flat_masters(), options.state_dtype)),
      exp_avg_sq_(zero_moments(parameters.flat_masters(), options.state_dtype)) {
  // The gaps that align neighbours hold zeros, which stay zero.
  for (const model::FlatSegment& segment : parameters.segments()) {
    if (stretches_.empty() || stretches_.back().decay != segment.decay) {
      stretches_.push_back({segment.offset, segment.offset, segment.decay});
    }
    stretches_.back().end = segment.offset + segment.count;
  }
}

void AdamW::step(double learning_rate, double gradient_factor) {
  const ops::OpTimer timer(ops::OpKind::kOptimizer);
  ++steps_done_;
  const auto t = static_cast<double>(steps_done_);
  const base::CounterRng rng(options_.seed, base::RngPurpose::kMomentRounding);
  kernels::AdamW args{.moment_dtype = options_.state_dtype,
                      .rounding_key = rng.bits64(static_cast<std::uint64_t>(steps_done_)),
                      .learning_rate = learning_rate,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .epsilon = options_.epsilon,
                      .bias_correction1 = 1.0 - std::pow(options_.beta1, t),
                      .bias_correction2 = 1.0 - std::pow(options_.beta2, t),
                      .gradient_factor = static_cast<float>(gradient_factor)};
  auto* weight = parameters_->flat_masters().data_ptr<float>();
  const auto* gradient = parameters_->flat_gradients().data_ptr<float>();
  const ops::Backend& device = ops::backend_of(parameters_->flat_masters());
  for (const Stretch& stretch : stretches_) {
    args.weight = weight + stretch.begin;
    args.exp_avg = element(exp_avg_, stretch.begin);
    args.exp_avg_sq = element(exp_avg_sq_, stretch.begin);
    args.first_element = stretch.begin;
    args.gradient = gradient + stretch.begin;
    args.count = stretch.end - stretch.begin;
    args.weight_decay = stretch.decay ? options_.weight_decay : 0.0;
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
