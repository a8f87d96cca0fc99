// A gradient sink that remembers who asked for what.
#pragma once

#include <ATen/ops/zeros.h>

#include <cstdint>
#include <map>
#include <vector>

#include "model/grad_sink.h"

namespace longhaul::testing {

/// Gives each parameter an fp32 accumulator of the shape that `shapes` names and counts finished().
class RecordingSink final : public model::GradSink {
 public:
  using Shapes = std::map<std::int64_t, std::vector<std::int64_t>>;
  explicit RecordingSink(Shapes shapes) : shapes_(std::move(shapes)) {}

  /// Throws std::out_of_range for a parameter that nobody announced.
  at::Tensor accumulator(std::int64_t param) override {
    const auto [entry, is_new] = sums_.try_emplace(param);
    if (is_new) {
      entry->second = at::zeros(shapes_.at(param), at::kFloat);
    }
    return entry->second;
  }
  void finished(std::int64_t param) override { ++finished_[param]; }

  [[nodiscard]] const std::map<std::int64_t, at::Tensor>& sums() const { return sums_; }
  /// How often each parameter was declared finished.
  [[nodiscard]] const std::map<std::int64_t, int>& finished_counts() const { return finished_; }

 private:
  Shapes shapes_;
  std::map<std::int64_t, at::Tensor> sums_;
  std::map<std::int64_t, int> finished_;
};

}  // namespace longhaul::testing
