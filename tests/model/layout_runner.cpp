#include "model/layout_runner.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>

#include "dist/comm_threads.h"
#include "dist/shard.h"
#include "model/sharded_weight_store.h"

namespace longhaul::testing {
namespace {

constexpr std::uint64_t kWeightSeed = 7;

struct RankSetup {
  config::ModelConfig model;
  double lora_scale = 1;
  model::Parameters parameters;
};

RankSetup make_setup(const std::string& name, Tuning tuning, const StepOptions& options,
                     const dist::Communicator& world) {
  config::ModelConfig model = tiny_model(name);
  if (options.num_layers > 0) {
    model.num_layers = options.num_layers;
  }
  const config::TuningSpec spec = options.spec.value_or(tiny_tuning(model, tuning));
  const double lora_scale = spec.lora ? spec.lora->scale() : 1.0;
  RankSetup setup{model, lora_scale,
                  model::Parameters(
                      config::build_registry(model, spec), options.dtype, options.device,
                      options.slabs ? std::optional(lora_scale) : std::nullopt,
                      options.sharded ? std::optional(model::RankShare{world.rank(), world.size()})
                                      : std::nullopt)};
  randomise(setup.parameters, kWeightSeed);
  return setup;
}

std::unique_ptr<model::WeightStore> make_store(const RankSetup& setup, const StepOptions& options,
                                               dist::Communicator& world) {
  if (!options.sharded) {
    return std::make_unique<model::ResidentWeightStore>(setup.model, setup.parameters,
                                                        setup.lora_scale);
  }
  return std::make_unique<model::ShardedWeightStore>(
      setup.model, setup.parameters, setup.lora_scale, world,
      options.make_side_stream ? options.make_side_stream() : nullptr);
}

}  // namespace

std::unique_ptr<dist::UlyssesExchange> in_two_parts(dist::Communicator& comm,
                                                    std::vector<config::RankHeads> heads,
                                                    std::int64_t head_dim) {
  auto exchange = std::make_unique<dist::UlyssesExchange>(comm, std::move(heads), head_dim);
  exchange->use_peer_memory(true);
  exchange->set_parts(2);
  return exchange;
}

StepResult run_rank(dist::Communicator& world, const std::string& model_name, Tuning tuning,
                    Layout layout, const std::vector<data::PackedBatch>& rows,
                    const StepOptions& options) {
  std::int64_t all_targets = 0;
  for (const data::PackedBatch& row : rows) {
    all_targets += row.num_targets();
  }
  const double scale = all_targets > 0 ? 1.0 / static_cast<double>(all_targets) : 0.0;
  const config::Mesh mesh{.dp = layout.dp, .sp = layout.sp};
  RankSetup setup = make_setup(model_name, tuning, options, world);
  const std::int64_t dp_rank = mesh.dp_rank(world.rank());
  const std::int64_t sp_rank = mesh.sp_rank(world.rank());
  const auto sp = world.split(static_cast<int>(dp_rank));
  auto heads = config::split_heads(setup.model.num_heads, setup.model.num_kv_heads, mesh.sp);
  const auto exchange =
      options.make_exchange
          ? options.make_exchange(*sp, heads, setup.model.head_dim)
          : std::make_unique<dist::UlyssesExchange>(*sp, heads, setup.model.head_dim);
  model::UlyssesAttention attention(setup.model, *exchange);
  attention.set_head_groups(options.attention_groups);
  const auto store = make_store(setup, options, world);
  auto policies = options.layer_policies;
  policies.resize(static_cast<std::size_t>(setup.model.num_layers), options.policy);
  model::DecoderModel decoder(
      setup.model, *store, attention, policies,
      {.host = {}, .mlp_tile_rows = options.mlp_tile_rows, .reruns_u = options.reruns_u});
  model::FlatGradSink sink(setup.parameters);
  const model::RandomAddress random{.seed = 3,
                                    .epoch = 1,
                                    .lora_dropout = options.lora_dropout,
                                    .neftune_alpha = options.neftune_alpha};
  std::vector<double> sums(3, 0.0);
  const auto num_rows = static_cast<std::int64_t>(rows.size());
  for (std::int64_t first = 0; first < num_rows; first += mesh.dp) {
    if (first + dp_rank >= num_rows) {
      decoder.sit_out_forward_backward();
      continue;
    }
    const data::PackedBatch& row = rows[static_cast<std::size_t>(first + dp_rank)];
    const dist::LocalBatch local = dist::shard_row(row, mesh.sp, sp_rank);
    const model::LossSum loss = decoder.forward_backward(local, scale, random, sink);
    sums[0] += loss.sum;
    sums[1] += static_cast<double>(loss.target_tokens);
    sums[2] += static_cast<double>(loss.correct);
  }
  const at::Tensor flat = setup.parameters.flat_gradients().cpu();  // itself on the CPU
  world.all_reduce_sum("gradients",
                       std::span(flat.data_ptr<float>(), static_cast<std::size_t>(flat.numel())));
  setup.parameters.flat_gradients().copy_(
      flat);  // back to the GPU; on the CPU it is the same memory
  world.all_reduce_sum("loss", std::span(sums));
  StepResult result{.loss_sum = sums[0],
                    .targets = static_cast<std::int64_t>(sums[1]),
                    .correct = static_cast<std::int64_t>(sums[2])};
  for (const model::FlatSegment& segment : setup.parameters.segments()) {
    const auto& spec = setup.parameters.registry()[static_cast<std::size_t>(segment.param)];
    result.gradients[spec.name] = setup.parameters.gradient(segment.param).cpu().clone();
  }
  return result;
}

StepResult run_step(const std::string& model_name, Tuning tuning, Layout layout,
                    const std::vector<data::PackedBatch>& rows, const StepOptions& options) {
  StepResult result;
  dist::run_ranks(static_cast<int>(layout.dp * layout.sp), [&](dist::Communicator& world) {
    at::set_num_threads(1);
    StepResult mine = run_rank(world, model_name, tuning, layout, rows, options);
    if (world.rank() == 0) {
      result = std::move(mine);
    }
  });
  return result;
}

std::string compare_gradients(const std::map<std::string, at::Tensor>& got,
                              const std::map<std::string, at::Tensor>& expected, double limit) {
  double all = 0;
  for (const auto& [name, gradient] : expected) {
    all += gradient.to(at::kDouble).pow(2).sum().item<double>();
  }
  all = std::sqrt(all);
  if (got.size() != expected.size()) {
    return fmt::format("{} gradients instead of {}", got.size(), expected.size());
  }
  std::string faults;
  for (const auto& [name, gradient] : expected) {
    const at::Tensor want = gradient.to(at::kDouble);
    const at::Tensor difference = got.at(name).to(at::kDouble) - want;
    const double error = difference.norm().item<double>();
    const double allowed = limit * std::max(want.norm().item<double>(), 1e-3 * all);
    if (!(error <= allowed)) {
      faults += fmt::format("{}: error {:.3e} > {:.3e}\n", name, error, allowed);
    }
  }
  return faults;
}

}  // namespace longhaul::testing
