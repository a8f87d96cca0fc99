#include "plan/layer_time.h"

#include <algorithm>
#include <string>

#include "config/exchange_parts.h"
#include "config/kernel_memory.h"
#include "config/sharding.h"

namespace longhaul::plan {
namespace {

using config::ParamKind;
using config::Slot;

/// Share of the sum of its parts that a step reaches: 94.4 to 96.8 % of the kernels' own ceiling
/// (docs/performance.md). The rest are gaps between kernels and the narrow products' own time.
constexpr double kKernelShare = 0.96;

/// Seconds of the causal half of attention of one rank's heads; backward makes 5 products where
/// forward makes 2.
double attention_seconds(const Sizes& s, const AttentionRate& rate, double products) {
  const double seen = s.attended > 0 ? s.attended + rate.extra_tokens : 0;
  return products * static_cast<double>(s.row * s.my_q_width) * seen / rate.flops_per_s;
}

bool reruns(const config::LayerPolicy& policy, Slot slot) {
  return policy.action(slot) == config::SlotAction::kRerun;
}

/// The product that a module of a layer belongs to; null for other parameters.
LinearShape* product_of(LayerShape& layer, const config::ParamSpec& spec) {
  const std::string name = config::fused_name(spec);
  const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
  return is(".qkv.")         ? &layer.attention_in
         : is(".o_proj.")    ? &layer.attention_out
         : is(".gate_up.")   ? &layer.mlp_in
         : is(".down_proj.") ? &layer.mlp_down
                             : nullptr;
}

}  // namespace

double StepSeconds::total() const {
  return (products + attention + traffic) / kKernelShare + exchanges + copies + gathers + launches;
}

StepSeconds& StepSeconds::operator+=(const StepSeconds& other) {
  products += other.products;
  attention += other.attention;
  traffic += other.traffic;
  exchanges += other.exchanges;
  copies += other.copies;
  gathers += other.gathers;
  launches += other.launches;
  return *this;
}

StepSeconds operator*(double count, StepSeconds seconds) {
  for (double* part : {&seconds.products, &seconds.attention, &seconds.traffic, &seconds.exchanges,
                       &seconds.copies, &seconds.gathers, &seconds.launches}) {
    *part *= count;
  }
  return seconds;
}

std::vector<LayerShape> layer_shapes(std::span<const config::ParamSpec> registry,
                                     std::int64_t num_layers) {
  std::vector<LayerShape> layers(static_cast<std::size_t>(num_layers));
  for (const config::ParamSpec& spec : registry) {
    const bool is_base = spec.kind == ParamKind::kLinearWeight && !spec.in_adapter;
    if (spec.layer < 0 || spec.layer >= num_layers ||
        !(is_base || spec.kind == ParamKind::kLoraA)) {
      continue;
    }
    LinearShape* linear = product_of(layers[static_cast<std::size_t>(spec.layer)], spec);
    if (linear == nullptr) {
      continue;
    }
    if (is_base) {
      linear->outputs += spec.shape[0];
      linear->inputs = spec.shape[1];
      linear->trained_elements += spec.trainable ? spec.num_elements() : 0;
    } else {
      linear->lora_columns += spec.shape[0];
    }
  }
  return layers;
}

LayerTime::LayerTime(const LayerShape& shape, const LayerSetting& setting)
    : shape_(shape),
      s_(*setting.sizes),
      rates_(*setting.rates),
      form_(setting.form),
      has_slabs_(s_.element < 4),
      has_dropout_(setting.lora_dropout > 0) {}

/// Seconds of reading or writing `columns` elements of each of the rank's tokens.
double LayerTime::rows_traffic(std::int64_t columns) const {
  return static_cast<double>(s_.local * columns * s_.element) / rates_.memory_bytes_per_s;
}

/// The same for every token of the row: what attention works on.
double LayerTime::head_traffic(std::int64_t columns) const {
  return static_cast<double>(s_.row * columns * s_.element) / rates_.memory_bytes_per_s;
}

/// `columns` elements of the other ranks' tokens come in, as much goes out. What is waited for of it: GPUs of one host
/// exchange long rows in two parts, one of them beside the products.
double LayerTime::exchange(std::int64_t columns) const {
  if (!s_.exchanges) {
    return 0;
  }
  const double hidden = s_.on_gpu && s_.local >= config::kRowsOfTwoParts ? 0.5 : 0;
  return (1 - hidden) *
         exchange_seconds(rates_, static_cast<double>((s_.row - s_.local) * columns * s_.element));
}

std::int64_t LayerTime::tile_of(const LinearShape& linear) const {
  const bool is_mlp = &linear == &shape_.mlp_in || &linear == &shape_.mlp_down;
  return is_mlp ? rows_of_mlp_tile(s_, form_) : s_.local;
}

/// FLOPs, and the weights' way from memory once per tile: what makes products of few rows slower
/// (41.3 us per token at 4,096 rows, 38.4 at 32,768).
double LayerTime::product(const LinearShape& linear, std::int64_t tile_rows) const {
  const auto weights = static_cast<double>(linear.elements());
  const auto rows = static_cast<double>(s_.local);
  const double calls =
      std::max(1.0, rows / static_cast<double>(std::max<std::int64_t>(1, tile_rows)));
  return 2 * rows * weights / rates_.product_flops_per_s +
         calls * weights * static_cast<double>(s_.element) / rates_.memory_bytes_per_s;
}

/// Products that take their mask with them (ops/masked_products.h).
bool LayerTime::masks_in_products(const LinearShape& linear) const {
  return s_.on_gpu && has_slabs_ && linear.lora_columns <= config::kMostMaskedRank;
}

/// A·x. Drawing a mask takes as long as another pass over x; without kernels for it x goes in and out before.
double LayerTime::lora_input_traffic(const LinearShape& linear) const {
  if (!has_dropout_) {
    return rows_traffic(linear.inputs);
  }
  return rows_traffic((masks_in_products(linear) ? 2 : 3) * linear.inputs);
}

StepSeconds LayerTime::linear_forward(const LinearShape& linear, Turn turn) const {
  StepSeconds seconds{.products = product(linear, tile_of(linear))};
  if (linear.lora_columns == 0) {
    return seconds;
  }
  // A narrow product is as fast as the wide operand is read. A kept u is not made again.
  if (turn == Turn::kFirst || form_.reruns_u) {
    seconds.traffic += lora_input_traffic(linear);
  }
  if (!has_slabs_) {
    seconds.traffic += rows_traffic(2 * linear.outputs);  // added to the base product's result
  }
  return seconds;
}

StepSeconds LayerTime::linear_backward(const LinearShape& linear) const {
  const std::int64_t tile = tile_of(linear);
  StepSeconds seconds{.products = product(linear, tile)};
  if (linear.lora_columns > 0) {
    // du and dB read dy, dA reads x.
    seconds.traffic += rows_traffic(2 * linear.outputs + linear.inputs);
    if (has_dropout_) {
      // The mask of x again, and dx through A: added to the sum in one pass, or a tensor of its own that is masked into it.
      seconds.traffic += rows_traffic((masks_in_products(linear) ? 4 : 6) * linear.inputs);
    } else if (!has_slabs_) {
      seconds.traffic += rows_traffic(2 * linear.inputs);
    }
  }
  if (linear.trained_elements > 0) {
    const auto elements = static_cast<double>(linear.trained_elements);
    const double calls = std::max(
        1.0, static_cast<double>(s_.local) / static_cast<double>(std::max<std::int64_t>(1, tile)));
    seconds.products += 2 * static_cast<double>(s_.local) * elements / rates_.product_flops_per_s;
    // fp32: the product is written, read and added to the sum.
    seconds.traffic += calls * elements * 16 / rates_.memory_bytes_per_s;
  }
  return seconds;
}

/// Rotary embedding of q and k in place; with q/k norm also a copy of v and the norms. Exchanges rotate while they pack,
/// unless a norm comes first.
double LayerTime::rope_traffic() const {
  if (s_.exchanges && !s_.qk_norm) {
    return 0;
  }
  const std::int64_t qk = s_.my_q_width + s_.my_kv_width;
  return head_traffic(2 * qk + (s_.qk_norm ? 2 * (qk + s_.my_kv_width) : 0));
}

StepSeconds LayerTime::qkv(Turn turn) const {
  StepSeconds seconds = linear_forward(shape_.attention_in, turn);
  seconds.traffic += rows_traffic(2 * s_.hidden);  // norm
  if (s_.exchanges) {
    seconds.traffic += rows_traffic(2 * (s_.q_width + 2 * s_.kv_width));  // packing
    seconds.exchanges += exchange(s_.my_q_width + 2 * s_.my_kv_width);
  }
  return seconds;
}

StepSeconds LayerTime::attend() const {
  return {.attention = attention_seconds(s_, forward_rate(rates_, s_.attention), 2),
          .traffic = rope_traffic()};
}

StepSeconds LayerTime::attention_out(Turn turn) const {
  StepSeconds seconds = linear_forward(shape_.attention_out, turn);
  seconds.traffic += rows_traffic(3 * s_.hidden);  // the residual is added
  if (s_.exchanges) {
    seconds.traffic += rows_traffic(2 * s_.q_width);  // unpacking
    seconds.exchanges += exchange(s_.my_q_width);
  }
  return seconds;
}

StepSeconds LayerTime::mlp(Turn turn) const {
  StepSeconds seconds = linear_forward(shape_.mlp_in, turn);
  seconds += linear_forward(shape_.mlp_down, turn);
  // Norm; SwiGLU reads gate and up and writes their product; the residual is added.
  seconds.traffic += rows_traffic(2 * s_.hidden + 3 * s_.ffn + 3 * s_.hidden);
  return seconds;
}

StepSeconds LayerTime::forward() const {
  StepSeconds seconds = qkv(Turn::kFirst);
  seconds += attend();
  seconds += attention_out(Turn::kFirst);
  seconds += mlp(Turn::kFirst);
  return seconds;
}

StepSeconds LayerTime::rerun(const config::LayerPolicy& policy) const {
  StepSeconds seconds;
  if (reruns(policy, Slot::kQkv)) {
    seconds += qkv(Turn::kAgain);
  }
  if (reruns(policy, Slot::kAttnOut)) {
    seconds += attend();
  }
  if (reruns(policy, Slot::kResidual)) {
    seconds += attention_out(Turn::kAgain);
  }
  return seconds;
}

StepSeconds LayerTime::rerun_gate_up() const {
  StepSeconds seconds = linear_forward(shape_.mlp_in, Turn::kAgain);
  if (form_.reruns_u && shape_.mlp_down.lora_columns > 0) {  // gate_up's own is in linear_forward
    seconds.traffic += lora_input_traffic(shape_.mlp_down);
  }
  return seconds;
}

StepSeconds LayerTime::rerun_output() const { return mlp(Turn::kAgain); }

StepSeconds LayerTime::attention_backward() const {
  StepSeconds seconds{.attention = attention_seconds(s_, backward_rate(rates_, s_.attention), 5)};
  const std::int64_t fused = s_.my_q_width + 2 * s_.my_kv_width;
  seconds.traffic += head_traffic(2 * fused) + rope_traffic();  // results into one buffer
  if (s_.qk_norm) {
    seconds.traffic += rope_traffic() + head_traffic(2 * (s_.my_q_width + s_.my_kv_width));
  }
  if (s_.exchanges) {
    seconds.traffic += rows_traffic(2 * s_.q_width + 2 * (s_.q_width + 2 * s_.kv_width));
    seconds.exchanges += exchange(s_.my_q_width) + exchange(fused);
    if (shape_.attention_out.lora_columns > 0 && !s_.on_gpu) {  // a GPU does it beside an exchange
      seconds.exchanges += exchange(shape_.attention_out.lora_columns);  // du of every token
    }
  }
  return seconds;
}

StepSeconds LayerTime::backward() const {
  StepSeconds seconds = attention_backward();
  for (const LinearShape* linear :
       {&shape_.attention_in, &shape_.attention_out, &shape_.mlp_in, &shape_.mlp_down}) {
    seconds += linear_backward(*linear);
  }
  // Two norms again (2 h each) and their gradients (4 h each: three tensors are read, one is
  // written); SwiGLU's gradient and its product again (6 f: gate, up and d(product) are read,
  // d(gate), d(up) and the product written).
  seconds.traffic += rows_traffic(12 * s_.hidden + 6 * s_.ffn);
  return seconds;
}

}  // namespace longhaul::plan
