// `longhaul bench`: one rank of a measurement. Rank 0 prints one JSON line for each row length (and
// policy) as soon as it has been measured.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "base/path_state.h"
#include "cli/command.h"
#include "cli/gpu_sampler.h"
#include "cli/launch.h"
#include "cli/print.h"
#include "config/bench_rules.h"
#include "config/named_models.h"
#include "config/sharding.h"
#include "kernels/kernel_table.h"
#include "metrics/rates.h"
#include "ops/backend.h"
#include "ops/cuda_library.h"
#include "ops/scalar_type.h"
#include "plan/device.h"
#include "train/bench_kernels.h"
#include "train/bench_train.h"
#include "train/rank_agreement.h"
#include "train/rank_setup.h"
#include "train/run_setup.h"

namespace longhaul::cli {
namespace {

using base::OrderedJson;

/// What every line of a command has in common.
struct Subject {
  const config::Config& config;
  config::ModelConfig model;
  at::Device device;
};

std::string shape_name(const config::Config& config) {
  if (!config.bench.shape.empty()) {
    return config.bench.shape;
  }
  return base::without_slash(std::filesystem::path(config.model.model).lexically_normal())
      .filename();
}

/// `value` to `digits` digits behind the point: JSON lines that people read, too.
double rounded(double value, int digits) {
  return std::stod(fmt::format("{:.{}f}", value, digits));
}

std::string device_name(at::Device device) {
  const ops::Backend& backend = ops::backend_of(device);
  return device.is_cpu() ? fmt::format("{} ({}, {} threads per rank)", backend.identity().name,
                                       kernels::cpu_kernels_isa(), at::get_num_threads())
                         : backend.identity().name;
}

void print_line(const Subject& subject, const OrderedJson& line) {
  if (subject.config.launch.rank == 0) {
    fmt::print("{}\n", line.dump());
    flush_output();
  }
}

/// The first fields of every line.
OrderedJson begin_line(const Subject& subject, std::int64_t tokens) {
  return {{"bench", subject.config.bench.part},
          {"shape", shape_name(subject.config)},
          {"tokens", tokens},
          {"ranks", subject.config.launch.ranks},
          {"sp", subject.config.mesh.sp},
          {"dtype", base::dtype_name(train::compute_dtype(subject.config, subject.model))},
          {"device", device_name(subject.device)}};
}

/// name_s, name_s_min, name_s_max and steps.
metrics::Spread add_times(OrderedJson& line, const std::string& name,
                          const std::vector<double>& seconds) {
  constexpr int kDigits = 6;
  const metrics::Spread spread = metrics::spread_of(seconds);
  line[name + "_s"] = rounded(spread.median, kDigits);
  line[name + "_s_min"] = rounded(spread.least, kDigits);
  line[name + "_s_max"] = rounded(spread.most, kDigits);
  line["steps"] = seconds.size();
  return spread;
}

void add_rates(OrderedJson& line, const Subject& subject, const train::TrainMeasurement& measured,
               double step_s) {
  const double rate = metrics::per_second(static_cast<double>(measured.tokens), step_s);
  const double per_device = rate / static_cast<double>(subject.config.launch.ranks);
  const auto peak = plan::peak_flops_of(ops::backend_of(subject.device).identity().name);
  // A rehearsal skips work that a rate would count.
  const bool is_whole = subject.config.bench.attention_rehearsal == 1;
  const auto whole = [&](double value) {
    return is_whole ? OrderedJson(rounded(value, 1)) : OrderedJson(nullptr);
  };
  line["attention_rehearsal"] = subject.config.bench.attention_rehearsal;
  line["tokens_per_s"] = whole(rate);
  line["tokens_per_s_per_device"] = whole(per_device);
  line["flops_per_token"] = measured.flops_per_token;
  line["mfu"] =
      peak && is_whole
          ? OrderedJson(rounded(
                metrics::model_flops_utilisation(per_device, measured.flops_per_token, *peak), 4))
          : OrderedJson(nullptr);
}

void add_bytes(OrderedJson& line, const train::TrainMeasurement& measured) {
  const std::int64_t reserved = measured.memory.peak_reserved_bytes;
  line["peak_bytes"] = measured.memory.peak_bytes;
  line["peak_reserved_bytes"] = reserved > 0 ? OrderedJson(reserved) : OrderedJson(nullptr);
  line["planned_bytes"] = measured.plan.bytes.total();
  line["fits"] = measured.plan.fits;
  line["host_bytes"] = measured.host_bytes;
}

void add_samples(OrderedJson& line, const std::optional<GpuSamples>& seen) {
  const auto value = [&](double number) {
    return seen ? OrderedJson(rounded(number, 0)) : OrderedJson(nullptr);
  };
  line["sm_clock_mhz"] = value(seen ? seen->mean_sm_clock_mhz : 0);
  line["power_w"] = value(seen ? seen->mean_power_w : 0);
  line["device_used_bytes"] = seen ? OrderedJson(seen->most_used_bytes) : OrderedJson(nullptr);
}

void add_anatomy(OrderedJson& line, const train::StepAnatomy& anatomy) {
  constexpr int kDigits = 6;
  OrderedJson seconds = OrderedJson::object();
  for (std::size_t kind = 0; kind < ops::kOpKinds.size(); ++kind) {
    seconds[std::string(ops::kOpKinds[kind])] = rounded(anatomy.seconds.of[kind], kDigits);
  }
  seconds["host"] = rounded(anatomy.seconds.host, kDigits);
  seconds["idle"] = rounded(anatomy.idle_s, kDigits);
  line["anatomy_s"] = seconds;
  line["kernels_s"] = rounded(anatomy.kernels_s, kDigits);
  line["share_of_kernels"] = rounded(anatomy.kernels_s / anatomy.step_s, 4);
}

OrderedJson train_line(const Subject& subject, const train::TrainMeasurement& measured,
                       const std::optional<GpuSamples>& seen) {
  const config::Config& config = subject.config;
  OrderedJson line = begin_line(subject, measured.tokens);
  line["documents"] = measured.documents;
  line["attended_length"] = rounded(measured.attended_length, 1);
  line["train_type"] = config.tuning.train_type;
  line["lora_rank"] = config.tuning.train_type == "lora"
                          ? OrderedJson(config.tuning.lora_rank.value_or(0))
                          : OrderedJson(nullptr);
  line["lora_dropout"] = config.tuning.train_type == "lora"
                             ? OrderedJson(config.tuning.lora_dropout.value_or(0))
                             : OrderedJson(nullptr);
  line["optimizer_state_dtype"] = base::dtype_name(config.train.optimizer_state_dtype);
  line["attention"] =
      ops::backend_of(subject.device)
          .attention_name(train::attention_kernels(config),
                          ops::torch_type(train::compute_dtype(config, subject.model)));
  const std::string sharding = config::sharding_option(config);
  line["sharding"] = sharding.empty() ? OrderedJson(nullptr) : OrderedJson(sharding);
  line["policy"] = plan::choice_text(measured.plan);
  const double step_s = add_times(line, "step", measured.step_s).median;
  add_rates(line, subject, measured, step_s);
  add_bytes(line, measured);
  double mean_s = 0;
  for (const double seconds : measured.step_s) {
    mean_s += seconds / static_cast<double>(measured.step_s.size());
  }
  line["exchange_share"] = rounded(measured.exchange_s / mean_s, 4);
  line["exchange_gb_per_s"] =
      rounded(metrics::per_second(measured.exchange_bytes, measured.exchange_s) * 1e-9, 3);
  line["loss"] = measured.loss;
  add_anatomy(line, measured.anatomy);
  add_samples(line, seen);
  return line;
}

/// Measures with the GPU's clock and power watched.
class WatchedTrainBench {
 public:
  WatchedTrainBench(const Subject& subject, const dist::ProcessGroup& group)
      : subject_(subject),
        bench_(subject.config, subject.model, group, subject.device),
        sampler_(subject.config.launch.rank == 0
                     ? gpu_reader(ops::backend_of(subject.device).identity().bus_address)
                     : nullptr) {}

  train::TrainMeasurement measure(const train::TrainPoint& point) {
    return bench_.measure(point, [&](bool is_measuring) {
      if (is_measuring) {
        sampler_.start();
      } else {
        seen_ = sampler_.stop();
      }
    });
  }
  [[nodiscard]] OrderedJson line(const train::TrainMeasurement& measured) const {
    return train_line(subject_, measured, seen_);
  }

 private:
  const Subject& subject_;
  train::TrainBench bench_;
  GpuSampler sampler_;
  std::optional<GpuSamples> seen_;
};

void bench_train(const Subject& subject, const dist::ProcessGroup& group) {
  WatchedTrainBench bench(subject, group);
  for (const std::string& policy : config::bench_policies(subject.config)) {
    for (const std::int64_t tokens : subject.config.bench.lengths) {
      print_line(subject, bench.line(bench.measure({.tokens = tokens, .policy = policy})));
    }
  }
}

/// What cannot be measured is said, with the bytes that it needs.
OrderedJson skipped_line(const Subject& subject, const train::TrainMeasurement& measured) {
  OrderedJson line = begin_line(subject, measured.tokens);
  line["policy"] = plan::choice_text(measured.plan);
  line["planned_bytes"] = measured.plan.bytes.total();
  line["host_bytes"] = measured.plan.bytes.host;
  line["fits"] = false;
  return line;
}

void bench_ladder(const Subject& subject, const dist::ProcessGroup& group) {
  WatchedTrainBench bench(subject, group);
  for (const std::int64_t tokens : subject.config.bench.lengths) {
    OrderedJson before;
    for (const train::LadderRung& rung : train::ladder_rungs(tokens, !subject.device.is_cpu())) {
      const train::TrainMeasurement measured = bench.measure(rung.point);
      const bool is_skipped = measured.step_s.empty();
      OrderedJson line = is_skipped ? skipped_line(subject, measured) : bench.line(measured);
      line["rung"] = rung.name;
      if (!is_skipped) {
        constexpr int kDigits = 4;
        const auto ratio = [&](const char* field) {
          return before.is_null()
                     ? OrderedJson(nullptr)
                     : OrderedJson(rounded(line[field].get<double>() / before[field].get<double>(),
                                           kDigits));
        };
        line["speed_ratio"] = ratio("tokens_per_s");
        line["peak_ratio"] = ratio("peak_bytes");
        before = line;
      }
      print_line(subject, line);
    }
  }
}

struct KernelChoice {
  std::string name;
  ops::AttentionKernels kernels = ops::AttentionKernels::kFastest;
  std::string kernel{};  // what it leads to
};

/// The choices that lead to different kernels on this device, the one that runs take first.
std::vector<KernelChoice> kernel_choices(const Subject& subject, bool is_packed) {
  using ops::AttentionKernels;
  std::vector<KernelChoice> candidates = {{"fastest", AttentionKernels::kFastest},
                                          {"flash_attn", AttentionKernels::kFlash}};
  if (is_packed) {
    candidates.push_back({"cudnn, a call per document", AttentionKernels::kCudnnPerDocument});
  }
  const at::ScalarType type = ops::torch_type(train::compute_dtype(subject.config, subject.model));
  std::vector<KernelChoice> choices;
  for (KernelChoice& candidate : candidates) {
    candidate.kernel = ops::backend_of(subject.device).attention_name(candidate.kernels, type);
    if (std::none_of(choices.begin(), choices.end(),
                     [&](const KernelChoice& other) { return other.kernel == candidate.kernel; })) {
      choices.push_back(candidate);
    }
  }
  return choices;
}

OrderedJson attention_line(const Subject& subject, const train::AttentionMeasurement& measured,
                           const KernelChoice& choice) {
  OrderedJson line = begin_line(subject, measured.tokens);
  line["kernel"] = choice.kernel;
  line["choice"] = choice.name;
  line["query_heads"] = measured.query_heads;
  line["kv_heads"] = measured.kv_heads;
  line["head_dim"] = subject.model.head_dim;
  line["documents"] = measured.documents;
  line["attended_length"] = rounded(measured.attended_length, 1);
  const auto tflops = [](double flops, double seconds) {
    return rounded(metrics::per_second(flops, seconds) * 1e-12, 4);
  };
  const double forward_s = add_times(line, "forward", measured.forward_s).median;
  line["forward_tflops"] = tflops(measured.forward_flops, forward_s);
  const double backward_s = add_times(line, "backward", measured.backward_s).median;
  line["backward_tflops"] = tflops(measured.backward_flops, backward_s);
  return line;
}

void bench_attention(const Subject& subject) {
  const auto measure = [&](std::int64_t tokens, std::optional<std::int64_t> mean) {
    for (const KernelChoice& choice : kernel_choices(subject, mean.has_value())) {
      const train::AttentionMeasurement measured = train::measure_attention(
          subject.config, subject.model, subject.device, tokens, mean, choice.kernels);
      print_line(subject, attention_line(subject, measured, choice));
    }
  };
  for (const std::int64_t tokens : subject.config.bench.lengths) {
    measure(tokens, std::nullopt);
    if (subject.config.bench.packing_mean) {
      measure(tokens, subject.config.bench.packing_mean);
    }
  }
}

OrderedJson exchange_line(const Subject& subject, const train::ExchangeMeasurement& measured) {
  OrderedJson line = begin_line(subject, measured.tokens);
  line["way"] = measured.through_peers ? "peer memory" : "messages";
  const auto add = [&](const std::string& name, const train::ExchangeTimes& times) {
    line[name + "_bytes"] = static_cast<std::int64_t>(times.bytes);
    const double seconds = add_times(line, name, times.seconds).median;
    line[name + "_gb_per_s"] = rounded(metrics::per_second(times.bytes, seconds) * 1e-9, 3);
  };
  add("qkv", measured.qkv);
  add("output", measured.output);
  return line;
}

void bench_exchange(const Subject& subject, const dist::ProcessGroup& group) {
  for (const std::int64_t tokens : subject.config.bench.lengths) {
    for (const bool through_peers : {false, true}) {
      const train::ExchangeMeasurement measured = train::measure_exchange(
          subject.config, subject.model, group, subject.device, tokens, through_peers);
      if (measured.through_peers == through_peers) {  // not every transport has peer memory
        print_line(subject, exchange_line(subject, measured));
      }
    }
  }
}

}  // namespace

int run_bench(const config::Config& config, RankSession& session) {
  ops::install_counting_allocator();
  const c10::InferenceMode no_autograd;
  const Subject subject{.config = config,
                        .model = config.bench.shape.empty()
                                     ? config::read_model_config(config.model.model)
                                     : *config::find_named_model(config.bench.shape),
                        .device = ops::open_device(config)};
  if (config.bench.part == "attention") {  // one rank, no group
    bench_attention(subject);
    return 0;
  }
  session.status().set_activity("connect the ranks");
  auto world = dist::open_world(config.launch, &session.status(), subject.device);
  train::check_options_agree(config, *world);
  const dist::ProcessGroup group = dist::make_process_group(std::move(world), config.mesh);
  session.status().set_activity("measure");
  if (config.bench.part == "train") {
    bench_train(subject, group);
  } else if (config.bench.part == "ladder") {
    bench_ladder(subject, group);
  } else {
    bench_exchange(subject, group);
  }
  return 0;
}

}  // namespace longhaul::cli
