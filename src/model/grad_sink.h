// Where weight gradients leave the layers. Implementations accumulate, later reduce-scatter,
// project or update at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/parameters.h"

namespace longhaul::model {

class GradSink {
 public:
  GradSink() = default;
  GradSink(const GradSink&) = delete;
  GradSink& operator=(const GradSink&) = delete;
  virtual ~GradSink() = default;

  /// fp32 tensor of the parameter's shape to which this micro-batch's gradient is added.
  virtual at::Tensor accumulator(std::int64_t param) = 0;
  /// The parameter receives nothing more in this micro-batch's backward pass.
  virtual void finished(std::int64_t param) = 0;
};

/// Adds into the flat gradient buffer of `Parameters`.
class FlatGradSink final : public GradSink {
 public:
  explicit FlatGradSink(const Parameters& parameters) : parameters_(&parameters) {}
  at::Tensor accumulator(std::int64_t param) override { return parameters_->gradient(param); }
  void finished(std::int64_t /*param*/) override {}

 private:
  const Parameters* parameters_;
};

}  // namespace longhaul::model
