// How long the passes of one decoder layer take on one rank: matrix products, attention,
// element-wise traffic and exchanges, each at the rate of its kind (plan/device.h). From shapes
// only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/layer_bytes.h"
#include "plan/memory_plan.h"

namespace longhaul::plan {

/// Seconds of one rank by what passes in them.
struct StepSeconds {
  double products = 0;  // matrix products
  double attention = 0;
  double traffic = 0;    // kernels that are as fast as their bytes: element-wise ones, adapters'
                         // narrow products, loss, optimizer
  double exchanges = 0;  // between ranks: what compute waits for
  double copies = 0;     // of offloaded slots, as far as compute does not hide them
  double gathers = 0;    // of sharded weights, likewise
  double launches = 0;   // the device waits for its host, which starts kernels one by one
  [[nodiscard]] double total() const;
  StepSeconds& operator+=(const StepSeconds& other);
};
StepSeconds operator*(double count, StepSeconds seconds);

/// Linear modules that share an input and are one product (q, k, v; o; gate, up; down).
struct LinearShape {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t lora_columns = 0;      // the sum of their adapters' ranks
  std::int64_t trained_elements = 0;  // of their base weights
  [[nodiscard]] std::int64_t elements() const { return inputs * outputs; }
};

/// The products of one layer in the order in which its forward pass makes them.
struct LayerShape {
  LinearShape attention_in;
  LinearShape attention_out;
  LinearShape mlp_in;
  LinearShape mlp_down;
};

/// Of every layer, from the parameters.
std::vector<LayerShape> layer_shapes(std::span<const config::ParamSpec> registry,
                                     std::int64_t num_layers);

/// What a layer's time depends on beside its shape; all of it outlives the LayerTime.
struct LayerSetting {
  const Sizes* sizes = nullptr;
  const DeviceRates* rates = nullptr;
  LayerForm form{};
  double lora_dropout = 0;
};

class LayerTime {
 public:
  LayerTime(const LayerShape& shape, const LayerSetting& setting);

  [[nodiscard]] StepSeconds forward() const;
  /// What `policy` runs again before the layer's backward pass, gate and up projections left out.
  [[nodiscard]] StepSeconds rerun(const config::LayerPolicy& policy) const;
  /// The gate and up projections again.
  [[nodiscard]] StepSeconds rerun_gate_up() const;
  /// The MLP again: the first layer of a D2 pair makes the input of the second.
  [[nodiscard]] StepSeconds rerun_output() const;
  [[nodiscard]] StepSeconds backward() const;

 private:
  enum class Turn { kFirst, kAgain };

  [[nodiscard]] double rows_traffic(std::int64_t columns) const;
  [[nodiscard]] double head_traffic(std::int64_t columns) const;
  [[nodiscard]] double exchange(std::int64_t columns) const;
  [[nodiscard]] double product(const LinearShape& linear, std::int64_t tile_rows) const;
  [[nodiscard]] std::int64_t tile_of(const LinearShape& linear) const;
  [[nodiscard]] bool masks_in_products(const LinearShape& linear) const;
  [[nodiscard]] double lora_input_traffic(const LinearShape& linear) const;
  [[nodiscard]] StepSeconds linear_forward(const LinearShape& linear, Turn turn) const;
  [[nodiscard]] StepSeconds linear_backward(const LinearShape& linear) const;
  [[nodiscard]] double rope_traffic() const;
  [[nodiscard]] StepSeconds qkv(Turn turn) const;
  [[nodiscard]] StepSeconds attend() const;
  [[nodiscard]] StepSeconds attention_out(Turn turn) const;
  [[nodiscard]] StepSeconds mlp(Turn turn) const;
  [[nodiscard]] StepSeconds attention_backward() const;

  const LayerShape& shape_;
  const Sizes& s_;
  const DeviceRates& rates_;
  LayerForm form_;
  bool has_slabs_;  // adapters ride in the base products (model/slab_linear)
  bool has_dropout_;
};

}  // namespace longhaul::plan
