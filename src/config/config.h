// The validated options of one run. Filled by the option table (options.h), completed by
// validate.cpp, const from then on. Names follow the command line; `std::optional` means "not
// given, decided later and printed".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "config/shapes.h"

namespace longhaul::config {

enum class Command { kSft, kPt, kPlan, kInfer, kEval, kExport, kData, kBench, kWebUi, kDoctor };

/// True for the commands that train.
constexpr bool is_training(Command command) {
  return command == Command::kSft || command == Command::kPt;
}
/// True for the commands that compute on the ranks which NPROC_PER_NODE starts.
constexpr bool runs_on_ranks(Command command) {
  return is_training(command) || command == Command::kBench;
}
/// True for the commands that compute with a model, on the CPU or on a GPU.
constexpr bool computes(Command command) {
  return runs_on_ranks(command) || command == Command::kInfer;
}
enum class DeviceChoice { kAuto, kCuda, kCpu };
enum class TruncationStrategy { kDelete, kLeft, kRight, kSplit };
enum class PackingStrategy { kBinpack, kSequential };
enum class LossScale { kDefault, kLastRound, kAll };
enum class Interval { kNo, kSteps, kEpoch };
enum class Schedule { kLinear, kCosine, kConstant, kConstantWithWarmup, kCosineWithMinLr };

struct ModelOptions {
  std::string model{};  // folder or hub id as given
  std::optional<bool> use_hf{};
  std::optional<base::Dtype> torch_dtype{};
  DeviceChoice device = DeviceChoice::kAuto;
  std::string attn_impl = "auto";
  std::optional<bool> use_flash_attn{};
  std::optional<std::int64_t> max_model_len{};
  std::string rope_scaling{};
  std::string template_name{};  // empty: decided by the model's chat_template
  bool use_chat_template = true;
  std::string system{};  // text or a .txt file, as given
};

struct TuningOptions {
  std::string train_type = "lora";          // lora | full
  std::string adapters{};                   // folder to start from
  std::optional<std::int64_t> lora_rank{};  // default 8
  std::optional<double> lora_alpha{};       // default 32
  std::optional<double> lora_dropout{};     // default 0.05
  std::string lora_bias = "none";
  std::optional<bool> use_rslora{};
  std::vector<std::string> target_modules{};  // empty: all-linear
  std::vector<std::string> modules_to_save{};
  std::vector<std::string> freeze_parameters{};
  std::string freeze_parameters_regex{};
  double freeze_parameters_ratio = 0;
  std::vector<std::string> trainable_parameters{};
  std::string trainable_parameters_regex{};
};

struct DataOptions {
  std::vector<std::string> dataset{};  // as given, `#N` included
  std::vector<std::string> val_dataset{};
  std::string custom_dataset_info{};
  double split_dataset_ratio = 0;
  std::optional<std::int64_t> max_length{};
  TruncationStrategy truncation_strategy = TruncationStrategy::kDelete;
  bool packing = false;
  std::optional<std::int64_t> packing_length{};
  PackingStrategy packing_strategy = PackingStrategy::kBinpack;
  bool padding_free = false;
  bool dataset_shuffle = true;
  bool train_dataloader_shuffle = true;
  std::int64_t data_seed = 42;
  std::map<std::string, std::string> columns{};  // file's column → our name
  bool strict = false;
  std::int64_t dataset_num_proc = 1;
  bool streaming = false;
  LossScale loss_scale = LossScale::kDefault;
  std::string cache_dir{};  // empty: $XDG_CACHE_HOME/longhaul
};

struct TrainOptions {
  std::int64_t per_device_train_batch_size = 1;
  std::int64_t per_device_eval_batch_size = 1;
  std::optional<std::int64_t> gradient_accumulation_steps{};
  double num_train_epochs = 3;
  std::int64_t max_steps = -1;
  std::optional<double> learning_rate{};  // 1e-4 LoRA, 1e-5 full
  Schedule lr_scheduler_type = Schedule::kCosine;
  std::map<std::string, double> lr_scheduler_kwargs{};
  double warmup_ratio = 0;
  std::int64_t warmup_steps = 0;
  std::string optim = "adamw_torch_fused";
  base::Dtype optimizer_state_dtype = base::Dtype::kFloat32;  // of both moments
  double weight_decay = 0.1;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.95;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1;
  std::optional<double> neftune_noise_alpha{};
  std::int64_t seed = 42;
};

struct ParallelOptions {
  std::optional<bool> ulysses{};
  std::optional<std::int64_t> ulysses_seq_len{};
  std::optional<std::int64_t> sequence_parallel_size{};
  std::optional<std::int64_t> ring_size{};
  std::string deepspeed{};
  std::string fsdp{};
};

struct MemoryOptions {
  std::string activation_policy = "auto";
  std::optional<bool> gradient_checkpointing{};
  std::optional<std::int64_t> gpu_memory_limit_bytes{};
  std::optional<std::int64_t> host_memory_limit_bytes{};
};

struct OutputOptions {
  std::string output_dir{};  // empty: output/MODEL
  bool add_version = true;
  bool create_checkpoint_symlink = false;
  std::int64_t logging_steps = 5;
  bool logging_first_step = true;
  Interval save_strategy = Interval::kSteps;
  std::int64_t save_steps = 500;
  std::optional<std::int64_t> save_total_limit{};
  bool save_only_model = false;
  std::optional<Interval> eval_strategy{};  // default: as save_strategy, no without validation data
  std::optional<std::int64_t> eval_steps{};
  bool eval_on_start = false;
  std::string resume_from_checkpoint{};
  std::vector<std::string> report_to = {"tensorboard"};
  bool deterministic = false;
};

struct InferOptions {
  std::string result_path{};
  std::int64_t max_new_tokens = 2048;
  double temperature = 0;
  double top_p = 1;
  std::optional<bool> stream{};
};

struct ExportOptions {
  bool merge_lora = false;
  bool exist_ok = false;
};

/// `longhaul data`
struct DataCommandOptions {
  std::string dump_tokens{};
  std::string tokenize{};
};

/// `longhaul plan`
struct PlanOptions {
  std::string plan_device{};
};

/// `longhaul bench`
struct BenchOptions {
  std::string part{};   // train | ladder | attention | exchange
  std::string shape{};  // a named model (named_models.h); empty: --model
  std::vector<std::int64_t> lengths = {4096};
  std::vector<std::string> policies{};         // empty: the one of --activation_policy
  std::optional<std::int64_t> steps{};         // measured ones; absent: fewer for longer rows
  std::optional<std::int64_t> packing_mean{};  // mean document length; absent: one document per row
  std::int64_t attention_rehearsal = 1;        // attention on one in so many rows; 1: on all
};

/// What the launch environment says (read by cli and dist/rendezvous only, carried here).
struct LaunchInfo {
  std::int64_t rank = 0;
  std::int64_t local_rank = 0;
  std::int64_t ranks = 1;
  std::int64_t local_ranks = 1;
  std::int64_t usable_gpus = 0;  // on this host, by this build; 0: ranks compute on the CPU
};

/// Everything the user asked for. Invariant after resolve(): every cross-field rule of the
/// contract holds and `mesh`, `row_length`, `accumulation` and `learning_rate` are decided.
struct Config {
  Command command = Command::kSft;
  ModelOptions model{};
  TuningOptions tuning{};
  DataOptions data{};
  TrainOptions train{};
  ParallelOptions parallel{};
  MemoryOptions memory{};
  OutputOptions output{};
  InferOptions infer{};
  ExportOptions export_model{};
  DataCommandOptions data_command{};
  PlanOptions plan{};
  BenchOptions bench{};
  LaunchInfo launch{};

  // Decided by resolve() from the options, the model's config.json and the launch environment.
  Mesh mesh{};
  std::int64_t max_length = 0;  // longest sample in tokens
  std::int64_t row_length = 0;  // packing_length with packing, else max_length
  std::int64_t accumulation = 1;
  double learning_rate = 0;

  /// Sequences of one optimizer step: batch × accumulation × dp.
  [[nodiscard]] std::int64_t global_batch() const {
    return train.per_device_train_batch_size * accumulation * mesh.dp;
  }
  /// Options whose value came from the command line or an option file, by name (`lora_rank`).
  std::map<std::string, std::string> given{};
  /// Given options that steer other implementations only; named in one start-up line.
  std::vector<std::string> no_effect{};
  /// Lines for the start of the program: what was accepted without effect, keys of config.json that
  /// nobody reads.
  std::vector<std::string> notes{};

  /// True when the ranks compute on the CPU.
  [[nodiscard]] bool on_cpu() const {
    return model.device == DeviceChoice::kCpu ||
           (model.device == DeviceChoice::kAuto && launch.usable_gpus == 0);
  }
};

}  // namespace longhaul::config
