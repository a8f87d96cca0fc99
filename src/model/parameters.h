// Where every parameter of the registry lives: fused buffers that the layers read (compute type),
// one flat fp32 buffer of trained weights (masters) and one of their gradients. Parameters that
// share an input (q, k, v; gate, up) and their LoRA A matrices lie next to each other, so that one
// matrix product serves them all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
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

/// A frozen group's weight and its adapters as one matrix [N + room, K + room]: W top left, scale·B
/// to its right, A below it, zeros elsewhere.
struct Slab {
  at::Tensor matrix;
  std::int64_t outputs = 0;  // N
  std::int64_t inputs = 0;   // K
  std::int64_t room = 0;     // LoRA columns of all members, rounded up to 8
};

class Parameters {
 public:
  /// Allocates (values are undefined until loaded). `compute` is float32 or bfloat16.
  /// With `slab_scale`, frozen groups with adapters lie in slabs, whose B carry that scale.
  Parameters(std::vector<config::ParamSpec> registry, at::ScalarType compute,
             at::Device device = at::kCPU, std::optional<double> slab_scale = std::nullopt);

  [[nodiscard]] const std::vector<config::ParamSpec>& registry() const { return registry_; }
  /// Number of a parameter by name; −1 when the registry has none of that name.
  [[nodiscard]] std::int64_t find(const std::string& name) const;
  [[nodiscard]] at::ScalarType compute_type() const { return compute_type_; }

  /// The slab that begins with this weight; null when it lies by itself.
  [[nodiscard]] const Slab* slab(std::int64_t weight) const;
  /// The weight as layers see it (the owner's for a tied parameter; scaled for a B in a slab).
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
    double scale = 1;  // compute = scale · master
  };
  [[nodiscard]] bool wants_slab(const std::vector<std::int64_t>& group) const;
  void allocate_slab(const std::vector<std::int64_t>& group);
  /// The parameter of the same module: "lora_A.weight" …; −1 when it has none.
  [[nodiscard]] std::int64_t sibling(std::int64_t weight, const std::string& name) const;
  void plan_segments(const std::vector<std::vector<std::int64_t>>& groups);
  void allocate(const std::vector<std::vector<std::int64_t>>& groups);
  void list_copies();
  [[nodiscard]] std::int64_t owner_of(std::int64_t param) const;

  std::vector<config::ParamSpec> registry_;
  at::ScalarType compute_type_;
  at::Device device_;
  std::optional<double> slab_scale_;
  std::map<std::int64_t, Slab> slabs_;
  std::map<std::string, std::int64_t> by_name_;
  std::vector<Place> places_;
  std::vector<FlatSegment> segments_;
  // What refresh_compute writes: compute copies and their masters, and the copies in slabs.
  std::vector<at::Tensor> copies_;
  std::vector<at::Tensor> copied_masters_;
  std::vector<at::Tensor> scaled_copies_;
  at::Tensor flat_master_;
  at::Tensor flat_gradient_;
};

}  // namespace longhaul::model
