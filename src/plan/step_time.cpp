#include "plan/step_time.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "config/sharding.h"

namespace longhaul::plan {
namespace {

using config::SlotAction;

/// Assumed, not measured: it matters only for rows of a few hundred tokens. The host starts a
/// kernel in 5 us, and a layer has about 80 of them in both passes (model/decoder_layer).
constexpr double kLaunchSeconds = 5e-6;
constexpr double kLaunchesPerLayer = 80;

/// What the optimizer moves per trained element beside the copy that layers read: gradients zeroed,
/// summed up for the norm and read; fp32 weight and two moments read and written; weight read again.
constexpr std::int64_t kUpdateBytes = 4 + 4 + 4 + 3 * 8 + 4;

/// What is left of `seconds` beside compute of `hidden_by` seconds.
double exposed(double seconds, double hidden_by) { return std::max(0.0, seconds - hidden_by); }

/// Seconds of gathering every layer's cut weights, one message per product; empty: nothing is cut.
std::vector<double> gather_seconds(const MemoryRequest& request, std::int64_t element) {
  if (request.shard_ranks <= 1) {
    return {};
  }
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> messages;
  const std::vector<bool> is_cut = config::cut_over_ranks(request.registry);
  for (std::size_t i = 0; i < is_cut.size(); ++i) {
    const config::ParamSpec& spec = request.registry[i];
    if (is_cut[i]) {
      messages[{spec.layer, config::fused_name(spec)}] += spec.num_elements() * element;
    }
  }
  const auto ranks = static_cast<double>(request.shard_ranks);
  std::vector<double> seconds(static_cast<std::size_t>(request.model->num_layers));
  for (const auto& [key, bytes] : messages) {
    seconds[static_cast<std::size_t>(key.first)] +=
        exchange_seconds(request.rates, static_cast<double>(bytes) * (ranks - 1) / ranks);
  }
  return seconds;
}

}  // namespace

/// Seconds of every layer in either direction, and of the LM head between them.
struct StepTimeModel::Passes {
  StepSeconds sum;
  std::vector<double> forward;
  std::vector<double> backward;  // 0 for layers that have none
  double head = 0;
};

StepTimeModel::StepTimeModel(const MemoryRequest& request)
    : request_(request),
      sizes_(sizes_of(request)),
      shapes_(layer_shapes(request.registry, request.model->num_layers)),
      lowest_(static_cast<std::size_t>(
          config::lowest_backward_layer(request.registry, request.model->num_layers))),
      gathers_(gather_seconds(request, sizes_.element)) {
  for (const config::ParamSpec& spec : request.registry) {
    if (spec.trainable && !spec.tied_to) {
      trained_ += spec.num_elements();
      trains_head_ =
          trains_head_ || spec.kind == config::ParamKind::kHead ||
          (request.model->tie_word_embeddings && spec.kind == config::ParamKind::kEmbedding);
    }
  }
}

LayerTime StepTimeModel::layer(std::size_t index, const LayerForm& form) const {
  return {shapes_[index],
          {.sizes = &sizes_,
           .rates = &request_.rates,
           .form = form,
           .lora_dropout = request_.lora_dropout}};
}

/// Final norm, LM head and loss of the target rows, forward and backward.
StepSeconds StepTimeModel::head(const LayerForm& form) const {
  const DeviceRates& rates = request_.rates;
  const auto targets = static_cast<double>(sizes_.targets);
  const auto weights = static_cast<double>(sizes_.hidden * sizes_.vocab);
  const auto element = static_cast<double>(sizes_.element);
  const auto tile = static_cast<double>(logits_tile_rows(sizes_, form));
  const double tiles = std::max(1.0, targets / tile);
  const double products = trains_head_ ? 3 : 2;
  // Norm and its gradient read and write rows; the loss reads logits twice and writes their gradient.
  const double bytes =
      (targets * static_cast<double>(6 * sizes_.hidden + 3 * sizes_.vocab) + 2 * tiles * weights) *
          element +
      (trains_head_ ? tiles * weights * 16 : 0);
  return {.products = products * 2 * targets * weights / rates.product_flops_per_s,
          .traffic = bytes / rates.memory_bytes_per_s};
}

StepTimeModel::Passes StepTimeModel::passes(std::span<const config::LayerPolicy> policies,
                                            const LayerForm& form) const {
  const std::vector<bool> rebuilt =
      config::rebuilt_inputs(policies, static_cast<std::int64_t>(lowest_));
  Passes passes;
  passes.backward.resize(policies.size());
  const StepSeconds last = head(form);
  passes.head = last.total();
  passes.sum = last;
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const LayerTime time = layer(i, form);
    const StepSeconds forward = time.forward();
    passes.forward.push_back(forward.total());
    passes.sum += forward;
    if (i < lowest_) {
      continue;
    }
    StepSeconds backward = time.backward();
    if (policies[i].action(config::Slot::kGateUp) == SlotAction::kRerun) {
      backward += time.rerun_gate_up();
    }
    // The first layer of a pair is re-run for the second, and not once more in its own turn.
    if (i + 1 == policies.size() || !rebuilt[i + 1]) {
      backward += time.rerun(policies[i]);
    }
    if (rebuilt[i]) {
      const LayerTime below = layer(i - 1, form);
      backward += below.rerun(policies[i - 1]);
      backward += below.rerun_output();
    }
    passes.backward[i] = backward.total();
    passes.sum += backward;
  }
  return passes;
}

/// A layer's slots leave beside the next layer's forward pass and return beside the backward pass
/// of the layer above (model/slot_offload); the highest layer's beside the LM head.
double StepTimeModel::exposed_copies(std::span<const config::LayerPolicy> policies,
                                     const Passes& passes) const {
  const std::vector<bool> rebuilt =
      config::rebuilt_inputs(policies, static_cast<std::int64_t>(lowest_));
  double seconds = 0;
  for (std::size_t i = lowest_; i < policies.size(); ++i) {
    const auto bytes = static_cast<double>(
        slots_with(sizes_, policies[i], SlotAction::kHost, /*holds_input=*/!rebuilt[i]));
    const bool is_highest = i + 1 == policies.size();
    seconds += exposed(bytes / request_.rates.to_host_bytes_per_s,
                       is_highest ? passes.head : passes.forward[i + 1]);
    seconds += exposed(bytes / request_.rates.from_host_bytes_per_s,
                       is_highest ? passes.head : passes.backward[i + 1]);
  }
  return seconds;
}

/// Weights are gathered beside the layer before them (model/sharded_weight_store). The first layers
/// of either direction are still there.
double StepTimeModel::exposed_gathers(const Passes& passes) const {
  double seconds = 0;
  for (std::size_t i = 0; i + 1 < gathers_.size(); ++i) {
    seconds += exposed(gathers_[i + 1], passes.forward[i]);
    seconds += i < lowest_ ? 0 : exposed(gathers_[i], passes.backward[i + 1]);
  }
  return seconds;
}

StepSeconds StepTimeModel::row(std::span<const config::LayerPolicy> policies,
                               const LayerForm& form) const {
  const Passes all = passes(policies, form);
  StepSeconds seconds = all.sum;
  seconds.copies = exposed_copies(policies, all);
  seconds.gathers = exposed_gathers(all);
  const double launches = kLaunchSeconds * kLaunchesPerLayer * static_cast<double>(policies.size());
  seconds.launches = exposed(launches, seconds.total());
  return seconds;
}

StepSeconds StepTimeModel::update() const {
  StepSeconds seconds{.traffic = static_cast<double>(trained_ * (kUpdateBytes + sizes_.element)) /
                                 request_.rates.memory_bytes_per_s};
  const auto ranks = static_cast<double>(request_.mesh.ranks());
  if (ranks > 1) {
    // A ring sends everything twice but a rank's own part.
    seconds.exchanges = exchange_seconds(
        request_.rates, 2 * (ranks - 1) / ranks * static_cast<double>(trained_) * 4);
  }
  return seconds;
}

double StepTimeModel::forward_seconds() const {
  double shortest = 0;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    const double seconds = layer(i, {}).forward().total();
    shortest = i == 0 ? seconds : std::min(shortest, seconds);
  }
  return shortest;
}

double StepTimeModel::to_host_seconds(std::int64_t bytes) const {
  return static_cast<double>(bytes) / request_.rates.to_host_bytes_per_s;
}

StepSeconds step_seconds(const MemoryRequest& request,
                         std::span<const config::LayerPolicy> policies, const LayerForm& form,
                         std::int64_t rows) {
  const StepTimeModel model(request);
  StepSeconds seconds = static_cast<double>(rows) * model.row(policies, form);
  seconds += model.update();
  return seconds;
}

}  // namespace longhaul::plan
