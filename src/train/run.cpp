#include "train/run.h"

#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <array>
#include <ctime>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "config/options.h"
#include "config/sharding.h"
#include "config/version.h"
#include "data/batch_builder.h"
#include "dist/process_group.h"
#include "dist/ulysses.h"
#include "metrics/memory.h"
#include "model/decoder_model.h"
#include "model/loader.h"
#include "model/sharded_weight_store.h"
#include "ops/backend.h"
#include "ops/cuda_library.h"
#include "ops/memory.h"
#include "ops/scalar_type.h"
#include "plan/memory_plan.h"
#include "plan/run_plan.h"
#include "train/checkpoint_files.h"
#include "train/run_folder.h"
#include "train/run_setup.h"
#include "train/start_print.h"
#include "train/weight_files.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;

/// Everything a run is made of, built top to bottom; members are destroyed in reverse.
class Run {
 public:
  Run(const config::Config& config, const RunSurroundings& surroundings)
      : config_(config),
        surroundings_(surroundings),
        model_config_(config::read_model_config(config.model.model)) {}

  RunResult execute() {
    check_output();
    prepare_data();
    open_device();
    connect();
    build_model();
    const std::int64_t start_step = resume();
    open_run_folder(start_step);
    return train_from(start_step);
  }

 private:
  [[nodiscard]] bool is_first_rank() const { return config_.launch.rank == 0; }
  void say(const std::string& line) const {
    if (is_first_rank()) {
      surroundings_.hooks.say(line);
    }
  }

  [[nodiscard]] RunFolderRequest folder_request() const {
    const fs::path model_name = fs::path(config_.model.model).lexically_normal();
    const fs::path name =
        model_name.has_filename() ? model_name.filename() : model_name.parent_path().filename();
    return {.output_dir = config_.output.output_dir.empty() ? fs::path("output") / name
                                                            : fs::path(config_.output.output_dir),
            .add_version = config_.output.add_version,
            .resumed_from = config_.output.resume_from_checkpoint,
            .now = std::time(nullptr)};
  }

  void check_output() const {
    if (is_first_rank()) {
      check_run_folder(folder_request());
    }
  }

  void prepare_data() {
    surroundings_.hooks.activity("read the data");
    text_ = make_text_setup(config_, model_config_);
    tuning_ = make_tuning_setup(config_, model_config_);
    datasets_.emplace(
        data::load_datasets(config_, data::encoding_of(*text_.encoder), surroundings_.data));
    schedule_.emplace(datasets_->train, config_);
    lr_.emplace(config_.train, config_.learning_rate, schedule_->total_steps());
  }

  void open_device() {
    if (config_.on_cpu()) {
      return;
    }
    const auto gpu = static_cast<c10::DeviceIndex>(config_.launch.local_rank);
    ops::load_cuda_backend(gpu);
    device_ = at::Device(at::kCUDA, gpu);
    at::Context& libtorch = at::globalContext();
    libtorch.setDeterministicAlgorithms(config_.output.deterministic, /*warn_only=*/false);
    libtorch.setDeterministicFillUninitializedMemory(false);  // we never read such memory
  }

  void connect() {
    surroundings_.hooks.activity("connect the ranks");
    group_ = dist::make_process_group(
        config_.launch, config_.mesh, surroundings_.observer,
        device_.is_cpu() ? dist::RankDevice::kCpu : dist::RankDevice::kGpu);
  }

  void build_model() {
    surroundings_.hooks.activity("load the weights");
    const base::Dtype dtype = compute_dtype(config_, model_config_);
    const std::vector<config::ParamSpec> registry =
        config::build_registry(model_config_, tuning_.spec);
    weights_.emplace(config_.model.model);
    weights_->check(registry);
    const model::RankShare share{group_.world->rank(), group_.world->size()};
    parameters_ = std::make_unique<model::Parameters>(
        registry, ops::torch_type(dtype), device_, slab_scale(dtype),
        config::shards_weights(config_) ? std::optional(share) : std::nullopt);
    make_plan(dtype);
    weights_->load(*parameters_);
    if (!config_.tuning.adapters.empty()) {
      model::load_adapter(config_.tuning.adapters, *parameters_);
      if (!tuning_.note.empty()) {
        say(tuning_.note);
      }
    } else {
      model::init_lora(static_cast<std::uint64_t>(config_.train.seed), *parameters_);
    }
    optimizer_ = std::make_unique<AdamW>(*parameters_,
                                         AdamWOptions{.beta1 = config_.train.adam_beta1,
                                                      .beta2 = config_.train.adam_beta2,
                                                      .epsilon = config_.train.adam_epsilon,
                                                      .weight_decay = config_.train.weight_decay});
    exchange_ = std::make_unique<dist::UlyssesExchange>(
        *group_.sp,
        config::split_heads(model_config_.num_heads, model_config_.num_kv_heads, config_.mesh.sp),
        model_config_.head_dim);
    attention_ = std::make_unique<model::UlyssesAttention>(model_config_, *exchange_);
    attention_->set_head_groups(plan_.form.attention_groups);
    store_ = make_store();
    decoder_ = std::make_unique<model::DecoderModel>(
        model_config_, *store_, *attention_, plan_.policies,
        model::MemorySettings{.host = {.planned_bytes = plan_.bytes.host,
                                       .largest_row = schedule_->largest_batch_tokens()},
                              .mlp_tile_rows = plan_.form.mlp_tile_rows});
  }

  [[nodiscard]] std::unique_ptr<model::WeightStore> make_store() const {
    const double lora_scale = tuning_.spec.lora ? tuning_.spec.lora->scale() : 1.0;
    if (config::shards_weights(config_)) {
      return std::make_unique<model::ShardedWeightStore>(model_config_, *parameters_, lora_scale,
                                                         *group_.world);
    }
    return std::make_unique<model::ResidentWeightStore>(model_config_, *parameters_, lora_scale);
  }

  /// Slabs pay on a GPU in 16 bits; dropout needs the adapters' input apart from the base's.
  [[nodiscard]] std::optional<double> slab_scale(base::Dtype dtype) const {
    const auto& lora = tuning_.spec.lora;
    const bool pays = !device_.is_cpu() && dtype != base::Dtype::kFloat32 && lora_dropout() == 0;
    return lora && pays ? std::optional(lora->scale()) : std::nullopt;
  }

  /// Bytes of tensors that this rank may plan with.
  [[nodiscard]] std::int64_t limit_bytes() const {
    if (device_.is_cpu()) {
      return host_limit_bytes();
    }
    const std::int64_t usable = ops::backend_of(device_).usable_bytes() * 9 / 10;
    return std::min(config_.memory.gpu_memory_limit_bytes.value_or(usable), usable);
  }

  /// This rank's share of the host's memory.
  [[nodiscard]] std::int64_t host_limit_bytes() const {
    const auto available = static_cast<std::int64_t>(metrics::host_memory().available_bytes);
    const std::int64_t host = config_.memory.host_memory_limit_bytes.value_or(available * 9 / 10);
    return host / std::max<std::int64_t>(1, config_.launch.local_ranks);
  }

  /// The same plan on every rank: all go by the one that has least.
  void make_plan(base::Dtype dtype) {
    std::array<double, 2> limits = {-static_cast<double>(limit_bytes()),
                                    -static_cast<double>(host_limit_bytes())};
    group_.world->all_reduce_max("memory limits", std::span(limits));
    const auto host_limit = static_cast<std::int64_t>(-limits[1]);
    plan_ = plan::make_memory_plan(
        {.model = &model_config_,
         .registry = parameters_->registry(),
         .dtype = dtype,
         .mesh = config_.mesh,
         .shard_ranks = config::shards_weights(config_) ? config_.mesh.ranks() : 1,
         .row_tokens = schedule_->largest_batch_tokens(),
         .row_targets = schedule_->largest_batch_tokens(),
         .activation_policy = config_.memory.activation_policy,
         .on_gpu = !device_.is_cpu(),
         .limit_bytes = static_cast<std::int64_t>(-limits[0]),
         .host_limit_bytes = host_limit,
         .attended_length = schedule_->attended_length()});
    if (plan_.bytes.host > host_limit) {
      throw base::SystemError(
          {.where = "--activation_policy " + config_.memory.activation_policy,
           .what = fmt::format("offloaded activations need {} of host memory per rank",
                               plan::gigabytes(plan_.bytes.host)),
           .got = plan::gigabytes(host_limit) + " that a rank may use",
           .hint = "Offload fewer layers, or use auto; --host_memory_limit sets what the ranks of "
                   "a host share"});
    }
  }

  [[nodiscard]] double lora_dropout() const {
    return tuning_.spec.lora ? tuning_.spec.lora->dropout : 0.0;
  }

  /// Step to go on from; 0 for a fresh run.
  std::int64_t resume() {
    identity_ =
        make_identity(config_, tuning_, text_,
                      {.data = datasets_->report.fingerprint, .weights = weights_->fingerprint()});
    weights_.reset();  // everything has been read: the files are closed
    if (config_.output.resume_from_checkpoint.empty()) {
      return 0;
    }
    surroundings_.hooks.activity("read the checkpoint");
    const ResumePoint point = find_resume_point(config_.output.resume_from_checkpoint);
    for (const std::string& note : point.notes) {
      say(note);
    }
    const std::int64_t step = check_resumable(point.checkpoint, identity_);
    if (!config_.output.add_version) {
      check_nothing_newer(folder_request().output_dir, step);
    }
    read_optimizer(point.checkpoint, *parameters_, *optimizer_);
    resumed_state_ = read_trainer_state(point.checkpoint);
    resumed_from_ = point.checkpoint;
    say(fmt::format("resumed from {} after step {}", point.checkpoint.string(), step));
    return step;
  }

  void open_run_folder(std::int64_t start_step) {
    if (!is_first_rank()) {
      return;
    }
    for (const std::string& line : start_lines({.config = config_,
                                   .model = model_config_,
                                   .parameters = *parameters_,
                                   .plan = plan_,
                                   .text = text_,
                                   .data = datasets_->report,
                                   .schedule = *schedule_,
                                   .dtype = compute_dtype(config_, model_config_),
                                   .device = device_})) {
      say(line);
    }
    run_folder_ = make_run_folder(folder_request());
    say("run folder: " + run_folder_.string());
    remove_leftovers(run_folder_);
    write_args_json(run_folder_, config::options_json(config_), config::program_version());
    if (datasets_->report.split) {
      data::write_split_rows(*datasets_, run_folder_ / "val_dataset.jsonl");
    }
    const bool tensorboard =
        std::find(config_.output.report_to.begin(), config_.output.report_to.end(),
                  "tensorboard") != config_.output.report_to.end();
    recorder_ = std::make_unique<Recorder>(
        RecorderOptions{.device = device_,
                        .run_folder = run_folder_,
                        .tensorboard = tensorboard,
                        .window = {.num_devices = config_.mesh.ranks(),
                                   .sp = config_.mesh.sp,
                                   .dp = config_.mesh.dp},
                        .max_steps = schedule_->total_steps(),
                        .start_step = start_step,
                        .progress = surroundings_.progress},
        resumed_state_ ? resumed_state_->log_history : std::vector<HistoryEntry>{});
  }

  RunResult train_from(std::int64_t start_step) {
    CheckpointWriter checkpoints({.config = &config_,
                                  .parameters = parameters_.get(),
                                  .optimizer = optimizer_.get(),
                                  .run_folder = run_folder_,
                                  .model_folder = config_.model.model,
                                  .adapter = tuning_.adapter,
                                  .weights_dtype = compute_dtype(config_, model_config_),
                                  .identity = identity_});
    if (resumed_state_) {
      checkpoints.continue_from(*resumed_state_, resumed_from_);
    }
    if (start_step >= schedule_->total_steps()) {
      say(fmt::format("all {} steps were trained before: nothing is left to do", start_step));
    }
    surroundings_.hooks.activity("step");
    const TrainResult result =
        train({.step = {.config = &config_,
                        .world = group_.world.get(),
                        .sp = group_.sp.get(),
                        .model = decoder_.get(),
                        .parameters = parameters_.get(),
                        .optimizer = optimizer_.get(),
                        .lora_dropout = lora_dropout()},
               .train = &datasets_->train,
               .validation = datasets_->validation ? &*datasets_->validation : nullptr,
               .schedule = &*schedule_,
               .lr = &*lr_,
               .recorder = recorder_.get(),
               .checkpoints = &checkpoints,
               .start_step = start_step,
               .hooks = surroundings_.hooks});
    return {result.summary, result.stop_signal, run_folder_.string()};
  }

  const config::Config& config_;
  const RunSurroundings& surroundings_;
  config::ModelConfig model_config_;
  TextSetup text_;
  TuningSetup tuning_;
  std::optional<data::Datasets> datasets_;
  std::optional<data::TrainSchedule> schedule_;
  std::optional<LrSchedule> lr_;
  dist::ProcessGroup group_;
  at::Device device_ = at::kCPU;
  std::optional<model::BaseWeights> weights_;  // until the parameters are loaded
  std::unique_ptr<model::Parameters> parameters_;
  plan::MemoryPlan plan_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<dist::UlyssesExchange> exchange_;
  std::unique_ptr<model::UlyssesAttention> attention_;
  std::unique_ptr<model::WeightStore> store_;
  std::unique_ptr<model::DecoderModel> decoder_;
  RunIdentity identity_;
  std::optional<TrainerState> resumed_state_;
  std::filesystem::path resumed_from_;
  fs::path run_folder_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace

RunResult run_training(const config::Config& config, const RunSurroundings& surroundings) {
  ops::install_counting_allocator();
  // Gradients are written out by hand: libtorch need not track versions or views.
  const c10::InferenceMode no_autograd;
  Run run(config, surroundings);
  return run.execute();
}

}  // namespace longhaul::train
