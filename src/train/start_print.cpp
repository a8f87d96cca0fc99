#include "train/start_print.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include "config/sharding.h"
#include "kernels/kernel_table.h"
#include "metrics/progress.h"
#include "ops/backend.h"
#include "ops/scalar_type.h"
#include "plan/run_plan.h"
#include "train/run_setup.h"

namespace longhaul::train {
namespace {

using metrics::with_thousands;

using plan::gigabytes;

/// "9 query / 3 KV heads, per rank 5/2 4/2" (KV copies counted where they are held).
std::string heads_line(const StartFacts& facts) {
  const config::ModelConfig& model = facts.model;
  return fmt::format("heads (query/KV): {}/{}, per sp rank:{}", model.num_heads, model.num_kv_heads,
                     plan::rank_heads_text(model, facts.config.mesh.sp));
}

std::string batch_line(const StartFacts& facts) {
  const config::Config& config = facts.config;
  const std::int64_t per_device =
      (config.row_length * config.train.per_device_train_batch_size + config.mesh.sp - 1) /
      config.mesh.sp;
  return fmt::format(
      "rows of up to {} tokens: {} tokens per device, {} sequences per step (batch {} x "
      "accumulation {} x dp {}), up to {} tokens per step",
      with_thousands(config.row_length), with_thousands(per_device), config.global_batch(),
      config.train.per_device_train_batch_size, config.accumulation, config.mesh.dp,
      with_thousands(config.global_batch() * config.row_length));
}

std::string memory_line(const StartFacts& facts) {
  const plan::RankBytes& bytes = facts.plan.bytes;
  return fmt::format(
      "planned memory per rank: {} = weights {} + gradients {} + optimizer {} + activations {} + "
      "working set {}",
      gigabytes(bytes.total()), gigabytes(bytes.weights + bytes.masters),
      gigabytes(bytes.gradients), plan::optimizer_text(facts.config, bytes),
      gigabytes(bytes.activations), gigabytes(bytes.working_set));
}

std::string kernels_line(const StartFacts& facts) {
  const at::Device device = facts.device;
  const std::string torch = fmt::format("libtorch {}.{}.{}", TORCH_VERSION_MAJOR,
                                        TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
  if (device.is_cpu()) {
    return fmt::format("attention: {} fused CPU kernel; kernels: {}; {} threads per rank", torch,
                       kernels::cpu_kernels_isa(), at::get_num_threads());
  }
  return fmt::format("attention: {}; {} on {}",
                     ops::backend_of(device).attention_name(attention_kernels(facts.config),
                                                            ops::torch_type(facts.dtype)),
                     torch, device.str());
}

}  // namespace

std::vector<std::string> start_lines(const StartFacts& facts) {
  const config::Config& config = facts.config;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("model: {} ({}, {} layers, {}), {} parameters, {} trained",
                              config.model.model, facts.model.model_type, facts.model.num_layers,
                              base::dtype_name(facts.dtype),
                              with_thousands(facts.parameters.total_elements()),
                              with_thousands(facts.parameters.trainable_elements())));
  lines.push_back(fmt::format("ranks: {}, mesh dp {} x sp {}{}", config.mesh.ranks(),
                              config.mesh.dp, config.mesh.sp,
                              config.mesh.sp > 1 ? " (Ulysses)" : ""));
  lines.push_back(heads_line(facts));
  lines.push_back(
      facts.text.chosen_by.empty()
          ? "template: " + facts.text.template_name
          : fmt::format("template: {} ({})", facts.text.template_name, facts.text.chosen_by));
  for (const std::string& line : facts.data.lines()) {
    lines.push_back(line);
  }
  lines.push_back(batch_line(facts));
  lines.push_back(fmt::format("steps: {} ({} per epoch, {} sequences per epoch)",
                              facts.schedule.total_steps(), facts.schedule.steps_per_epoch(),
                              with_thousands(facts.schedule.num_sequences())));
  lines.push_back(kernels_line(facts));
  lines.push_back("activation policy: " + plan::choice_text(facts.plan));
  lines.push_back(memory_line(facts));
  if (config::shards_weights(config)) {
    lines.push_back(plan::sharding_text(config));
  }
  if (facts.plan.bytes.host > 0) {
    lines.push_back(plan::offload_text(facts.plan));
  }
  if (!facts.plan.fits) {
    lines.push_back("warning: the plan is larger than the memory limit");
  }
  return lines;
}

}  // namespace longhaul::train
