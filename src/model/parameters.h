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
#include "ops/rows.h"

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

/// Which part of the sharded weights a process holds.
struct RankShare {
  int rank = 0;
  int ranks = 1;
};

/// One rank's rows of a frozen group's weight [N, K], or of what lies over the adapters' rows of its
/// slab: [N, K + room], where the room holds zeros, as the adapters are whole on every rank.
struct Shard {
  at::Tensor rows{};                  // this rank's, [n, K + room]
  std::vector<config::Range> ranges;  // of all ranks, sizes differing by at most one
  std::int64_t outputs = 0;           // N
  std::int64_t inputs = 0;            // K
  std::int64_t room = 0;              // of the slab that it is a part of; 0: of a plain matrix
};

class Parameters {
 public:
  /// Allocates (values are undefined until loaded). `compute` is float32 or bfloat16.
  /// With `slab_scale`, frozen groups with adapters lie in slabs, whose B carry that scale.
  /// With `share`, the weights that config::cut_over_ranks names are held in part only.
  Parameters(std::vector<config::ParamSpec> registry, at::ScalarType compute,
             at::Device device = at::kCPU, std::optional<double> slab_scale = std::nullopt,
             std::optional<RankShare> share = std::nullopt);

  [[nodiscard]] const std::vector<config::ParamSpec>& registry() const { return registry_; }
  /// Number of a parameter by name; −1 when the registry has none of that name.
  [[nodiscard]] std::int64_t find(const std::string& name) const;
  [[nodiscard]] at::ScalarType compute_type() const { return compute_type_; }

  /// The slab that begins with this weight; null when it lies by itself.
  [[nodiscard]] const Slab* slab(std::int64_t weight) const;
  /// The shard of the group that begins with this weight; null when it is whole.
  [[nodiscard]] const Shard* shard(std::int64_t weight) const;
  /// The weight as layers see it (the owner's for a tied parameter; scaled for a slab's B).
  /// InternalError for a weight that is held in part only.
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
  /// type); of a sharded one, this rank's rows of `values`, which is whole.
  void assign(std::int64_t param, const at::Tensor& values);
  /// Grows whenever compute values may have changed: copies of them are as old as their number.
  [[nodiscard]] std::uint64_t version() const { return version_; }

  [[nodiscard]] std::int64_t total_elements() const;
  [[nodiscard]] std::int64_t trainable_elements() const;

 private:
  struct Place {
    at::Tensor compute;
    at::Tensor master;
    at::Tensor gradient;
    bool aliases = false;
    double scale = 1;  // compute = scale · master
    // In place of `compute`: the first weight of its group in shards_, and where it begins in it.
    std::int64_t shard = -1;
    std::int64_t first_row = 0;
  };
  using Group = std::vector<std::int64_t>;
  [[nodiscard]] bool wants_slab(const Group& group) const;
  /// The sizes of a group's slab, its matrix undefined.
  [[nodiscard]] Slab slab_sizes(const Group& group) const;
  void allocate_slab(const Group& group);
  void allocate_shard(const Group& group);
  void allocate_buffer(const Group& group);
  /// The parameter of the same module: "lora_A.weight" …; −1 when it has none.
  [[nodiscard]] std::int64_t sibling(std::int64_t weight, const std::string& name) const;
  void plan_segments(const std::vector<Group>& groups);
  void allocate(const std::vector<Group>& groups);
  /// From a trained parameter's master to its compute copy.
  [[nodiscard]] static ops::ScaledCopy copy_of(const Place& place);
  void list_copies();
  void assign_rows(const Place& place, const at::Tensor& values) const;
  [[nodiscard]] std::int64_t owner_of(std::int64_t param) const;

  std::vector<config::ParamSpec> registry_;
  at::ScalarType compute_type_;
  at::Device device_;
  std::optional<double> slab_scale_;
  std::optional<RankShare> share_;
  std::vector<bool> is_cut_;
  std::uint64_t version_ = 0;
  std::map<std::int64_t, Slab> slabs_;
  std::map<std::int64_t, Shard> shards_;
  std::map<std::string, std::int64_t> by_name_;
  std::vector<Place> places_;
  std::vector<FlatSegment> segments_;
  std::vector<ops::ScaledCopy> copies_;  // what refresh_compute does
  at::Tensor flat_master_;
  at::Tensor flat_gradient_;
};

}  // namespace longhaul::model
