// A group of linear layers on a part of its rows after the other: tiles, and parts of an exchange.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "config/shapes.h"
#include "model/grad_sink.h"
#include "model/linear.h"

namespace longhaul::model {

/// Gradients of a part: parameters are finished with the last one.
class PartSink final : public GradSink {
 public:
  PartSink(GradSink& sink, bool is_last) : sink_(&sink), is_last_(is_last) {}
  at::Tensor accumulator(std::int64_t param) override { return sink_->accumulator(param); }
  void finished(std::int64_t param) override {
    if (is_last_) {
      sink_->finished(param);
    }
  }

 private:
  GradSink* sink_;
  bool is_last_;
};

/// Mask addresses of some rows of those that `dropout` addresses.
LoraDropout of_rows(LoraDropout dropout, config::Range rows);

/// Rows of a matrix; undefined when it is.
at::Tensor of_rows(const at::Tensor& matrix, config::Range rows);

/// The u of all rows, made by the products of the parts or given to them.
class WholeU {
 public:
  /// `u`: where it is, or will be, whole.
  WholeU(at::Tensor& u, std::int64_t num_rows) : u_(&u), num_rows_(num_rows), given_(u.defined()) {}

  /// Linear::forward of the rows `rows`, which x, add and y hold alone.
  void forward(const Linear& linear, const at::Tensor& x, const LoraDropout& dropout,
               const at::Tensor& add, const at::Tensor& y, config::Range rows);

 private:
  at::Tensor* u_;
  std::int64_t num_rows_;
  bool given_;
};

}  // namespace longhaul::model
