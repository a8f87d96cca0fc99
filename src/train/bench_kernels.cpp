// Legend: T tokens of the row, S tokens of this rank, Hq / Hk heads of the model, nq / nk of this
// rank, d head size.
#include "train/bench_kernels.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <array>
#include <chrono>
#include <functional>

#include "config/bench_rules.h"
#include "dist/ulysses.h"
#include "metrics/rates.h"
#include "ops/attention.h"
#include "ops/scalar_type.h"
#include "train/bench_rows.h"
#include "train/run_setup.h"

namespace longhaul::train {
namespace {

/// Small noise [rows, width]: what kernels find in training; zeros would flatter them.
at::Tensor noise(std::int64_t rows, std::int64_t width, base::Dtype dtype, at::Device device) {
  at::Tensor values =
      at::empty({rows, width}, at::TensorOptions().dtype(ops::torch_type(dtype)).device(device));
  return values.normal_(0, 0.5);
}

/// Returns when the device has finished everything before. Work of one stream ends in order.
void wait_for_device(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) {
    at::empty({1}, tensor.options()).zero_().cpu();
  }
}

/// Seconds of each measured call of `work`, which works on `tensor`'s device.
std::vector<double> time_calls(const config::BenchSteps& steps, const at::Tensor& tensor,
                               const std::function<void()>& before,
                               const std::function<void()>& work) {
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < steps.warm_up + steps.measured; ++i) {
    before();
    wait_for_device(tensor);
    const auto begin = std::chrono::steady_clock::now();
    work();
    wait_for_device(tensor);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i >= steps.warm_up) {
      seconds.push_back(took.count());
    }
  }
  return seconds;
}

}  // namespace

AttentionMeasurement measure_attention(const config::Config& config,
                                       const config::ModelConfig& model, at::Device device,
                                       std::int64_t tokens,
                                       std::optional<std::int64_t> packing_mean,
                                       ops::AttentionKernels kernels) {
  const config::RankHeads heads =
      config::split_heads(model.num_heads, model.num_kv_heads, config.mesh.sp).front();
  const ops::AttentionShape shape{.num_query_heads = heads.num_query_heads(),
                                  .num_kv_heads = heads.num_kv_heads(),
                                  .head_dim = model.head_dim,
                                  .runs = config::equal_ratio_runs(heads),
                                  .kernels = kernels};
  const std::vector<std::int64_t> documents = bench_documents(tokens, packing_mean);
  const std::vector<std::int32_t> borders = document_borders(documents);
  AttentionMeasurement result{.tokens = tokens,
                              .documents = static_cast<std::int64_t>(documents.size()),
                              .attended_length = metrics::attended_length(documents),
                              .query_heads = shape.num_query_heads,
                              .kv_heads = shape.num_kv_heads};
  result.forward_flops = 2.0 * static_cast<double>(shape.num_query_heads * shape.head_dim) *
                         static_cast<double>(tokens) * result.attended_length;
  result.backward_flops = 2.5 * result.forward_flops;

  const base::Dtype dtype = compute_dtype(config, model);
  const std::int64_t d = shape.head_dim;
  const at::Tensor qkv =
      noise(tokens, (shape.num_query_heads + 2 * shape.num_kv_heads) * d, dtype, device);
  const at::Tensor dout = noise(tokens, shape.num_query_heads * d, dtype, device);
  const at::Tensor dqkv = at::empty_like(qkv);
  const config::BenchSteps steps = config::bench_steps(config.bench, tokens);
  ops::AttentionOutput output;
  result.forward_s = time_calls(
      steps, qkv, [&] { output = {}; },
      [&] { output = ops::attention_forward(qkv, shape, borders); });
  result.backward_s = time_calls(
      steps, qkv, [] {}, [&] { ops::attention_backward(dout, qkv, output, shape, borders, dqkv); });
  return result;
}

ExchangeMeasurement measure_exchange(const config::Config& config, const config::ModelConfig& model,
                                     const dist::ProcessGroup& group, at::Device device,
                                     std::int64_t tokens, bool through_peers) {
  dist::UlyssesExchange exchange(
      *group.sp, config::split_heads(model.num_heads, model.num_kv_heads, config.mesh.sp),
      model.head_dim);
  exchange.set_row(config::split_tokens(tokens, config.mesh.sp));
  exchange.use_peer_memory(through_peers);
  const base::Dtype dtype = compute_dtype(config, model);
  const std::int64_t d = model.head_dim;
  const at::Tensor fused =
      noise(exchange.local_tokens(), (model.num_heads + 2 * model.num_kv_heads) * d, dtype, device);
  const dist::Qkv local = dist::split_qkv(fused, model.num_heads, model.num_kv_heads, d);
  const config::BenchSteps steps = config::bench_steps(config.bench, tokens);
  const auto before = [&] {
    group.sp->barrier("start of an exchange");
    group.sp->reset_counters();
  };
  const auto times_of = [&](const std::function<void()>& work) {
    ExchangeTimes times{.seconds = time_calls(steps, fused, before, work)};
    std::array<double, 1> bytes = {static_cast<double>(group.sp->counters().exchange_bytes)};
    group.world->all_reduce_sum("bytes of exchanges", std::span<double>(bytes));
    times.bytes = bytes[0] / static_cast<double>(group.world->size());
    group.world->all_reduce_max("times of exchanges", std::span(times.seconds));
    return times;
  };
  ExchangeMeasurement result{.tokens = tokens};
  dist::Qkv mine;
  result.qkv = times_of([&] { mine = exchange.seq_to_head_qkv(local, mine.fused); });
  const at::Tensor head_output =
      noise(tokens, exchange.my_heads().num_query_heads() * d, dtype, device)
          .unflatten(1, {exchange.my_heads().num_query_heads(), d});
  at::Tensor output;
  result.output = times_of([&] { output = exchange.head_to_seq(head_output, output); });
  result.through_peers = exchange.uses_peer_memory();
  return result;
}

}  // namespace longhaul::train
