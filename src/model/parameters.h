// Where every parameter of the registry lives: fused buffers that the layers read (compute type),
// one flat fp32 buffer of trained weights (masters) and one of their gradients. Parameters that
// share an input (q, k, v; gate, up) and their LoRA A matrices lie next to each other, so that one
// matrix product serves them all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/shapes.h"

namespace longhaul::model {

/// A trained parameter's place in the flat buffers; offsets in elements.
struct FlatSegment {
  std::int64_t param = 0;
  std::int64_t offset = 0;
  std::int64_t count = 0;
  bool decay = false;
};

class Parameters {
 public:
  /// Allocates (values are undefined until loaded). `compute` is float32 or bfloat16.
  Parameters(std::vector<config::ParamSpec> registry, at::ScalarType compute,
             at::Device device = at::kCPU);

  [[nodiscard]] const std::vector<config::ParamSpec>& registry() const { return registry_; }
  /// Number of a parameter by name; −1 when the registry has none of that name.
  [[nodiscard]] std::int64_t find(const std::string& name) const;
  [[nodiscard]] at::ScalarType compute_type() const { return compute_type_; }

  /// The weight as layers see it (the owner's for a tied parameter).
  [[nodiscard]] const at::Tensor& compute(std::int64_t param) const;
  /// fp32 weight that the optimizer updates; only for trained parameters.
  [[nodiscard]] const at::Tensor& master(std::int64_t param) const;
  /// fp32 gradient accumulator; only for trained parameters.
  [[nodiscard]] const at::Tensor& gradient(std::int64_t param) const;
  /// Consecutive parameters of one fused group as one tensor [sum of rows, …].
  [[nodiscard]] at::Tensor fused(const std::vector<std::int64_t>& params) const;

  [[nodiscard]] const at::Tensor& flat_masters() const { return flat_master_; }
  [[nodiscard]] const at::Tensor& flat_gradients() const { return flat_gradient_; }
  [[nodiscard]] const std::vector<FlatSegment>& segments() const { return segments_; }
  [[nodiscard]] bool aliases_master(std::int64_t param) const;

  /// Writes trained weights into their compute copies where these are separate.
  void refresh_compute();
  /// Copies fp32 values into a parameter: master (exactly) and compute (rounded to the compute
  /// type).
  void assign(std::int64_t param, const at::Tensor& values);

  [[nodiscard]] std::int64_t total_elements() const;
  [[nodiscard]] std::int64_t trainable_elements() const;

 private:
  struct Place {
    at::Tensor compute;
    at::Tensor master;
    at::Tensor gradient;
    bool aliases = false;
  };
  void plan_segments(const std::vector<std::vector<std::int64_t>>& groups);
  void allocate(const std::vector<std::vector<std::int64_t>>& groups);
  [[nodiscard]] std::int64_t owner_of(std::int64_t param) const;

  std::vector<config::ParamSpec> registry_;
  at::ScalarType compute_type_;
  at::Device device_;
  std::map<std::string, std::int64_t> by_name_;
  std::vector<Place> places_;
  std::vector<FlatSegment> segments_;
  at::Tensor flat_master_;
  at::Tensor flat_gradient_;
};

}  // namespace longhaul::model
