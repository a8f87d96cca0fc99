// `longhaul plan`: what `sft` with the same options would do, from config.json (and the data, if
// given). Starts no rank and leaves nothing behind.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/path_state.h"
#include "cli/command.h"
#include "cli/data_environment.h"
#include "cli/machine.h"
#include "config/validate.h"
#include "data/dataset.h"
#include "data/schedule.h"
#include "dist/rendezvous.h"
#include "metrics/memory.h"
#include "plan/run_plan.h"
#include "train/rank_setup.h"
#include "train/run_setup.h"

namespace longhaul::cli {
namespace {

namespace fs = std::filesystem;

/// A folder that vanishes with the object: the plan tokenises the data but keeps nothing.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (base::temporary_folder() / "longhaul-plan-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw base::SystemError({.where = pattern, .what = "cannot make a temporary folder"});
    }
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

plan::DataFacts one_full_row(const config::Config& config) {
  const std::int64_t batch = config.row_length * config.train.per_device_train_batch_size;
  return {.largest_row = batch,
          .step_tokens = config.row_length * config.global_batch(),
          .attended_length = static_cast<double>(config.row_length)};
}

plan::DataFacts read_data(const config::Config& config, const config::ModelConfig& model) {
  if (config.data.dataset.empty()) {
    return one_full_row(config);
  }
  const train::TextSetup text = train::make_text_setup(config, model);
  const TemporaryFolder cache;
  config::Config without_cache = config;
  without_cache.data.cache_dir = cache.path().string();
  const data::Datasets sets = data::load_datasets(without_cache, data::encoding_of(*text.encoder),
                                                  data_environment(without_cache));
  const data::TrainSchedule schedule(sets.train, config);
  return {.is_real = true,
          .num_sequences = schedule.num_sequences(),
          .steps_per_epoch = schedule.steps_per_epoch(),
          .total_steps = schedule.total_steps(),
          .largest_row = schedule.largest_batch_tokens(),
          .step_tokens = sets.train.total_tokens() / schedule.steps_per_epoch(),
          .attended_length = schedule.attended_length(),
          .target_share = static_cast<double>(sets.train.total_targets()) /
                          static_cast<double>(sets.train.total_tokens())};
}

/// A GPU whose rates are not known.
plan::DeviceFacts unknown_gpu(const std::string& name) {
  plan::DeviceFacts device = *plan::find_device("h200");
  device.name = name + " (speed of an h200)";
  device.is_measured = false;
  return device;
}

/// The GPU that a run here would use, with the memory that it would plan with; one that is not in the table is as fast as
/// an H200.
plan::DeviceFacts gpu_of_this_machine(const config::Config& config) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe)
  if (usable_gpus(visible) == 0) {
    throw base::SystemError({.where = "--device",
                             .what = "no GPU that this build can use",
                             .got = "cuda",
                             .hint = "--plan_device plans for a GPU that is not here"});
  }
  const GpuInfo gpu = find_gpus().gpus.front();
  const auto known = plan::device_of_driver(gpu.name);
  plan::DeviceFacts device = known ? *known : unknown_gpu(gpu.name);
  device.memory_bytes = plan::plannable_bytes(gpu.free_bytes, plan::communicators(config));
  return device;
}

plan::DeviceFacts choose_device(const config::Config& config) {
  plan::DeviceFacts device;
  if (!config.plan.plan_device.empty()) {
    const auto found = plan::find_device(config.plan.plan_device);
    if (!found) {
      throw base::UserError(base::Problem{.where = "--plan_device",
                                          .what = "unknown device",
                                          .got = config.plan.plan_device,
                                          .expected = plan::device_names(),
                                          .hint = "Or give --gpu_memory_limit"});
    }
    device = *found;
  } else if (config.memory.gpu_memory_limit_bytes) {
    device = unknown_gpu("a GPU of the given memory");
  } else if (!config.on_cpu()) {
    device = gpu_of_this_machine(config);
  } else {
    const auto available = static_cast<std::int64_t>(metrics::host_memory().total_bytes);
    const std::int64_t host = config.memory.host_memory_limit_bytes.value_or(available * 9 / 10);
    const std::int64_t ranks = std::max<std::int64_t>(1, config.launch.local_ranks);
    device = plan::cpu_device(dist::default_threads(dist::available_cores(), ranks), host / ranks);
  }
  if (config.memory.gpu_memory_limit_bytes) {
    device.memory_bytes = *config.memory.gpu_memory_limit_bytes;
  }
  return device;
}

/// Host memory of one rank for offloaded activations; nothing when neither the user nor this machine
/// tells.
std::optional<std::int64_t> host_limit(const config::Config& config) {
  const bool elsewhere =
      !config.plan.plan_device.empty() || config.memory.gpu_memory_limit_bytes.has_value();
  return elsewhere && !config.memory.host_memory_limit_bytes
             ? std::nullopt
             : std::optional(train::host_limit_bytes(config));
}

}  // namespace

int run_plan(const config::Config& config) {
  const plan::DeviceFacts device = choose_device(config);
  const config::ModelConfig model = config::read_model_config(config.model.model);
  const train::TuningSetup tuning = train::make_tuning_setup(config, model);
  const std::vector<config::ParamSpec> registry = config::build_registry(model, tuning.spec);
  const plan::RunPlanRequest request{
      .config = &config,
      .model = &model,
      .registry = registry,
      .dtype = train::compute_dtype(config, model),
      .data = read_data(config, model),
      .device = device,
      .host_limit_bytes = host_limit(config),
      .lora_dropout = tuning.spec.lora ? tuning.spec.lora->dropout : 0};
  for (const std::string& line : plan::plan_lines(request, plan::make_run_plan(request))) {
    fmt::print("{}\n", line);
  }
  return 0;
}

}  // namespace longhaul::cli
