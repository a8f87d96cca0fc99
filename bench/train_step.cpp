// Train-step benchmark of named model shapes with random weights on GPUs: tokens/s, MFU and peak bytes as JSON lines.
//
//   build/cuda/train_step --shape qwen2.5-7b --tokens 4096 8192 --policy A [--steps 6] [--rank 16]
//   tests/tools/start_ranks.py 2 build/cuda/train_step …      one row over two GPUs (Ulysses)
//                         [--host_limit BYTES]
//
// One unpacked row per step, every token a target, LoRA on every linear layer, optimizer included; the first two steps
// (of fewer than three: the first) are left out. Policy auto fills 95 % of the free memory and offloads up to --host_limit bytes. MFU counts 4·N_mm + 6·N_lora + 6·L·Hq·d·s FLOPs per token, nothing re-run, against 989 TFLOP/s.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/activation_policy.h"
#include "dist/process_group.h"
#include "dist/rendezvous.h"
#include "dist/shard.h"
#include "dist/ulysses.h"
#include "model/decoder_model.h"
#include "ops/backend.h"
#include "ops/cuda_library.h"
#include "plan/memory_plan.h"
#include "train/optimizer.h"

namespace longhaul {
namespace {

constexpr double kPeakFlops = 989e12;
constexpr double kLoraScale = 2.0;

struct Shape {
  config::ModelFamily family;
  std::int64_t layers, hidden, heads, kv_heads, ffn, vocab;
  bool qkv_bias;
};

const std::map<std::string, Shape>& shapes() {
  static const std::map<std::string, Shape> table = {
      {"qwen2.5-7b", {config::ModelFamily::kQwen2, 28, 3584, 28, 4, 18944, 152064, true}},
      {"llama3.1-8b", {config::ModelFamily::kLlama, 32, 4096, 32, 8, 14336, 128256, false}},
      {"qwen2.5-14b", {config::ModelFamily::kQwen2, 48, 5120, 40, 8, 13824, 152064, true}},
      {"tiny", {config::ModelFamily::kLlama, 2, 512, 8, 2, 1024, 4096, false}}};
  return table;
}

struct Options {
  std::string shape = "qwen2.5-7b";
  std::vector<std::int64_t> tokens = {4096};
  std::vector<std::string> policies = {"A"};
  int steps = 6;
  std::int64_t rank = 16;
  std::optional<std::int64_t> host_limit;
};

Options parse(int argc, char** argv) {
  Options options;
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::vector<std::string> values;
    const std::string name = words[i];
    while (i + 1 < words.size() && !words[i + 1].starts_with("--")) {
      values.push_back(words[++i]);
    }
    if (values.empty()) {
      throw base::UserError({.where = name, .what = "needs a value"});
    }
    if (name == "--shape") {
      options.shape = values[0];
    } else if (name == "--tokens") {
      options.tokens.clear();
      for (const std::string& value : values) {
        options.tokens.push_back(std::stoll(value));
      }
    } else if (name == "--policy") {
      options.policies = values;
    } else if (name == "--steps") {
      options.steps = std::stoi(values[0]);
    } else if (name == "--rank") {
      options.rank = std::stoll(values[0]);
    } else if (name == "--host_limit") {
      options.host_limit = static_cast<std::int64_t>(std::stod(values[0]));
    } else {
      throw base::UserError({.where = name, .what = "unknown option"});
    }
  }
  return options;
}

config::ModelConfig model_of(const Shape& shape) {
  config::ModelConfig model;
  model.family = shape.family;
  model.model_type = shape.family == config::ModelFamily::kQwen2 ? "qwen2" : "llama";
  model.num_layers = shape.layers;
  model.hidden_size = shape.hidden;
  model.num_heads = shape.heads;
  model.num_kv_heads = shape.kv_heads;
  model.head_dim = shape.hidden / shape.heads;
  model.intermediate_size = shape.ffn;
  model.vocab_size = shape.vocab;
  model.max_position_embeddings = 1 << 20;
  model.qkv_bias = shape.qkv_bias;
  return model;
}

/// Norms 1, everything else small noise.
void randomise(model::Parameters& parameters) {
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    if (spec.tied_to) {
      continue;
    }
    at::Tensor values = parameters.compute(static_cast<std::int64_t>(i));
    spec.kind == config::ParamKind::kNorm ? values.fill_(1) : values.normal_(0, 0.02);
    if (spec.trainable) {
      at::Tensor master = parameters.master(static_cast<std::int64_t>(i));
      master.copy_(values);
    }
  }
}

data::PackedBatch make_row(std::int64_t tokens, std::int64_t vocab) {
  data::PackedBatch row;
  for (std::int64_t i = 0; i < tokens; ++i) {
    const auto id = static_cast<std::int32_t>((i * 7919 + 13) % vocab);
    row.ids.push_back(id);
    row.labels.push_back((id + 5) % static_cast<std::int32_t>(vocab));
    row.positions.push_back(static_cast<std::int32_t>(i));
  }
  row.cu_seqlens = {0, static_cast<std::int32_t>(tokens)};
  row.sample_ids = {0};
  return row;
}

double flops_per_token(const config::ModelConfig& model, std::int64_t lora, std::int64_t tokens) {
  const std::int64_t h = model.hidden_size;
  const std::int64_t layer = h * model.q_width() * 2 + 2 * h * model.num_kv_heads * model.head_dim +
                             3 * h * model.intermediate_size;
  const std::int64_t multiplied = model.num_layers * layer + h * model.vocab_size;
  return 4.0 * static_cast<double>(multiplied) + 6.0 * static_cast<double>(lora) +
         6.0 * static_cast<double>(model.num_layers * model.q_width()) *
             static_cast<double>(tokens);
}

class Bench {
 public:
  Bench(const Options& options, const config::LaunchInfo& launch)
      : options_(options),
        model_(model_of(shapes().at(options.shape))),
        group_(dist::make_process_group(launch, {.dp = 1, .sp = launch.ranks}, nullptr,
                                        dist::RankDevice::kGpu)),
        device_(at::kCUDA, static_cast<c10::DeviceIndex>(launch.local_rank)),
        exchange_(*group_.sp,
                  config::split_heads(model_.num_heads, model_.num_kv_heads, launch.ranks),
                  model_.head_dim),
        attention_(model_, exchange_),
        parameters_(registry(options.rank), at::kBFloat16, device_, kLoraScale),
        optimizer_(parameters_, {}),
        store_((randomise(parameters_), model_), parameters_, kLoraScale) {}

  void run(std::int64_t tokens, const std::string& policy) {
    const ops::Backend& device = ops::backend_of(device_);
    const plan::MemoryPlan plan = planned(tokens, policy, device.usable_bytes());
    attention_.set_head_groups(plan.form.attention_groups);
    model::DecoderModel decoder(
        model_, store_, attention_, plan.policies,
        model::MemorySettings{.host = {.planned_bytes = plan.bytes.host, .largest_row = tokens},
                              .mlp_tile_rows = plan.form.mlp_tile_rows});
    const dist::LocalBatch row =
        dist::shard_row(make_row(tokens, model_.vocab_size), group_.mesh.sp, group_.sp->rank());
    std::vector<double> seconds;
    double loss = 0;
    for (int step = 0; step < options_.steps; ++step) {
      const auto begin = std::chrono::steady_clock::now();
      loss = one_step(decoder, row, device);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (step >= std::min(2, options_.steps - 1)) {
        seconds.push_back(took.count());
      }
      if (step == 0) {
        device.reset_memory_peak();
      }
    }
    const dist::CommCounters exchanged = group_.sp->counters();  // of the last step
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    const double rate = static_cast<double>(tokens) / median;
    const auto gpus = static_cast<double>(group_.mesh.ranks());
    if (group_.world->rank() != 0) {
      return;
    }
    fmt::print(
        R"({{"shape": "{}", "tokens": {}, "gpus": {}, "policy": "{}", "tokens_per_s": {:.0f}, "mfu": {:.4f}, "step_s": {:.4f}, "peak_bytes": {}, "planned_bytes": {}, "host_bytes": {}, "exchange_share": {:.4f}, "exchange_gb_per_s": {:.1f}, "loss": {:.4f}}})"
        "\n",
        options_.shape, tokens, group_.mesh.ranks(), plan::choice_text(plan), rate,
        rate * flops_per_token(model_, parameters_.trainable_elements(), tokens) / kPeakFlops /
            gpus,
        median, device.memory().peak_bytes, plan.bytes.total(), decoder.host_bytes(),
        exchanged.exchange_s / median,
        exchanged.exchange_s > 0
            ? static_cast<double>(exchanged.exchange_bytes) / exchanged.exchange_s * 1e-9
            : 0.0,
        loss);
    std::fflush(stdout);
  }

 private:
  std::vector<config::ParamSpec> registry(std::int64_t rank) const {
    const std::vector<std::string> targets = {"all-linear"};
    config::TuningSpec spec;
    spec.lora = config::LoraSpec{.rank = rank,
                                 .target_modules = config::resolve_target_modules(model_, targets)};
    return config::build_registry(model_, spec);
  }

  plan::MemoryPlan planned(std::int64_t tokens, const std::string& policy,
                           std::int64_t usable) const {
    return plan::make_memory_plan({.model = &model_,
                                   .registry = parameters_.registry(),
                                   .dtype = base::Dtype::kBFloat16,
                                   .mesh = group_.mesh,
                                   .row_tokens = tokens,
                                   .row_targets = tokens,
                                   .activation_policy = policy,
                                   .on_gpu = true,
                                   .limit_bytes = usable * 95 / 100,
                                   .host_limit_bytes = options_.host_limit,
                                   .attended_length = static_cast<double>(tokens)});
  }

  double one_step(model::DecoderModel& decoder, const dist::LocalBatch& row,
                  const ops::Backend& device) {
    const at::Tensor& gradients = parameters_.flat_gradients();
    gradients.zero_();
    group_.sp->reset_counters();
    model::FlatGradSink sink(parameters_);
    const double scale = 1.0 / static_cast<double>(row.row_tokens());
    const model::LossSum loss = decoder.forward_backward(row, scale, {}, sink);
    std::array<double, 1> sum{loss.sum};
    group_.world->all_reduce_sum("loss sums", std::span<double>(sum));
    group_.world->all_reduce_sum(
        "gradients",
        std::span(gradients.data_ptr<float>(), static_cast<std::size_t>(gradients.numel())));
    const double squares = device.kernels->sum_of_squares(gradients.data_ptr<float>(),
                                                          gradients.numel(), device.stream());
    optimizer_.step(1e-4, train::clip_factor(std::sqrt(squares), 1.0));
    gradients.narrow(0, 0, 1).cpu();  // waits for the step's end
    return sum[0] * scale;
  }

  Options options_;
  config::ModelConfig model_;
  dist::ProcessGroup group_;
  at::Device device_;
  dist::UlyssesExchange exchange_;
  model::UlyssesAttention attention_;
  model::Parameters parameters_;
  train::AdamW optimizer_;
  model::ResidentWeightStore store_;
};

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const config::LaunchInfo launch = dist::read_rank_environment(dist::process_environment()).info;
  ops::load_cuda_backend(static_cast<int>(launch.local_rank));
  Bench bench(options, launch);
  for (const std::string& policy : options.policies) {
    for (const std::int64_t tokens : options.tokens) {
      bench.run(tokens, policy);
    }
  }
  return 0;
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  try {
    return longhaul::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_step: error: {}\n", error.what());
    return 2;
  }
}
