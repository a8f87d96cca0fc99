#include "train/run.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/path_state.h"
#include "config/options.h"
#include "config/version.h"
#include "data/batch_builder.h"
#include "dist/process_group.h"
#include "dist/ulysses.h"
#include "model/decoder_model.h"
#include "model/loader.h"
#include "ops/backend.h"
#include "ops/cuda_library.h"
#include "ops/memory.h"
#include "ops/scalar_type.h"
#include "plan/device.h"
#include "plan/memory_plan.h"
#include "plan/run_plan.h"
#include "train/checkpoint_files.h"
#include "train/out_of_memory.h"
#include "train/rank_agreement.h"
#include "train/rank_setup.h"
#include "train/run_folder.h"
#include "train/run_setup.h"
#include "train/start_print.h"
#include "train/weight_files.h"

namespace longhaul::train {
namespace {

namespace fs = std::filesystem;

AdamWOptions adamw_options(const config::TrainOptions& train) {
  return {.beta1 = train.adam_beta1,
          .beta2 = train.adam_beta2,
          .epsilon = train.adam_epsilon,
          .weight_decay = train.weight_decay,
          .state_dtype = train.optimizer_state_dtype,
          .seed = static_cast<std::uint64_t>(train.seed)};
}

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
    device_ = ops::open_device(config_);
    connect();
    build_model();
    const std::int64_t start_step = resume();
    check_ranks_read_the_same(start_step);
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
    const fs::path name =
        base::without_slash(fs::path(config_.model.model).lexically_normal()).filename();
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

  void connect() {
    surroundings_.hooks.activity("connect the ranks");
    auto world = dist::open_world(config_.launch, surroundings_.observer, device_);
    check_options_agree(config_, *world);
    group_ = dist::make_process_group(std::move(world), config_.mesh);
  }

  void build_model() {
    surroundings_.hooks.activity("load the weights");
    const base::Dtype dtype = compute_dtype(config_, model_config_);
    const std::vector<config::ParamSpec> registry =
        config::build_registry(model_config_, tuning_.spec);
    weights_.emplace(config_.model.model);
    weights_->check(registry);
    parameters_ = std::make_unique<model::Parameters>(registry, ops::torch_type(dtype), device_,
                                                      slab_scale(tuning_.spec, dtype, device_),
                                                      weight_share(config_, *group_.world));
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
    optimizer_ = std::make_unique<AdamW>(*parameters_, adamw_options(config_.train));
    exchange_ = std::make_unique<dist::UlyssesExchange>(
        *group_.sp,
        config::split_heads(model_config_.num_heads, model_config_.num_kv_heads, config_.mesh.sp),
        model_config_.head_dim);
    exchange_->use_peer_memory(!device_.is_cpu());
    attention_ = std::make_unique<model::UlyssesAttention>(model_config_, *exchange_);
    attention_->set_head_groups(plan_.form.attention_groups);
    attention_->set_kernels(attention_kernels(config_));
    store_ = make_weight_store(config_, model_config_, *parameters_,
                               tuning_.spec.lora ? tuning_.spec.lora->scale() : 1.0, *group_.world);
    decoder_ = std::make_unique<model::DecoderModel>(
        model_config_, *store_, *attention_, plan_.policies,
        memory_settings(plan_, schedule_->largest_batch_tokens()));
  }

  void make_plan(base::Dtype dtype) {
    plan_ = plan_rank({.config = &config_,
                       .model = &model_config_,
                       .registry = parameters_->registry(),
                       .dtype = dtype,
                       .device = device_,
                       .activation_policy = config_.memory.activation_policy,
                       .row_tokens = schedule_->largest_batch_tokens(),
                       .attended_length = schedule_->attended_length(),
                       .lora_dropout = lora_dropout()},
                      *group_.world);
  }

  [[nodiscard]] double lora_dropout() const {
    return tuning_.spec.lora ? tuning_.spec.lora->dropout : 0.0;
  }

  /// Files may differ from host to host though they have the same names.
  void check_ranks_read_the_same(std::int64_t start_step) const {
    base::OrderedJson contents = identity_;
    contents["step of the checkpoint"] = start_step;
    check_contents_agree(contents, *group_.world);
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
        RecorderOptions{
            .device = device_,
            .run_folder = run_folder_,
            .tensorboard = tensorboard,
            .window = {.num_devices = config_.mesh.ranks(),
                       .sp = config_.mesh.sp,
                       .dp = config_.mesh.dp,
                       .peak_flops = plan::peak_flops_of(ops::backend_of(device_).identity().name)},
            .sizes = plan::model_sizes(model_config_),
            .kind = plan::training_kind(parameters_->registry()),
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
    const TrainerParts parts{
        .step = {.config = &config_,
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
        .hooks = surroundings_.hooks};
    const TrainResult result =
        explain_out_of_memory("training", plan_, device_, [&] { return train(parts); });
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
