// Runs one optimizer step's forward and backward on any (dp, sp) layout of threads-as-ranks and
// returns the global loss and the summed gradients.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "dist/ulysses.h"
#include "model/decoder_model.h"
#include "model/tiny_models.h"
#include "ops/side_stream.h"

namespace longhaul::testing {

struct Layout {
  std::int64_t sp = 1;
  std::int64_t dp = 1;
};

struct StepResult {
  double loss_sum = 0;
  std::int64_t targets = 0;
  std::int64_t correct = 0;
  std::map<std::string, at::Tensor> gradients{};
};

/// How one run deviates from the product, for the tests that must see a fault.
struct StepOptions {
  config::LayerPolicy policy{};
  /// One per layer in place of `policy`.
  std::vector<config::LayerPolicy> layer_policies{};
  std::int64_t num_layers = 0;  // in place of the model's own number
  std::int64_t attention_groups = 1;
  std::int64_t mlp_tile_rows = 0;
  bool reruns_u = false;
  double lora_dropout = 0;
  double neftune_alpha = 0;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;  // a GPU: one rank only
  bool slabs = false;            // frozen weights and their adapters as one matrix
  bool sharded = false;          // frozen weights cut over all ranks
  /// Where the sharded store gathers; null: the product's.
  std::function<std::unique_ptr<ops::SideStream>()> make_side_stream{};
  /// What trains, in place of the `Tuning` that is passed.
  std::optional<config::TuningSpec> spec{};
  /// Replaces the exchange; null: the product's.
  std::function<std::unique_ptr<dist::UlyssesExchange>(
      dist::Communicator&, std::vector<config::RankHeads>, std::int64_t head_dim)>
      make_exchange{};
};

/// An exchange as GPUs make it for long rows: through peer memory where the communicator has it, in two parts.
std::unique_ptr<dist::UlyssesExchange> in_two_parts(dist::Communicator& comm,
                                                    std::vector<config::RankHeads> heads,
                                                    std::int64_t head_dim);

/// `rows[i]` goes to dp group i % dp. Each token's loss is scaled by 1 / all targets.
StepResult run_step(const std::string& model_name, Tuning tuning, Layout layout,
                    const std::vector<data::PackedBatch>& rows, const StepOptions& options = {});

/// The same as one rank of an existing `world` of layout.sp · layout.dp ranks; every rank gets the
/// sums. Collective.
StepResult run_rank(dist::Communicator& world, const std::string& model_name, Tuning tuning,
                    Layout layout, const std::vector<data::PackedBatch>& rows,
                    const StepOptions& options = {});

/// Empty when ‖g − g₁‖ ≤ limit · max(‖g₁‖, 1e-3 · ‖all g₁‖) for every parameter, else what differs.
std::string compare_gradients(const std::map<std::string, at::Tensor>& got,
                              const std::map<std::string, at::Tensor>& expected, double limit);

}  // namespace longhaul::testing
