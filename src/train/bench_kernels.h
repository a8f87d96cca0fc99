// The two operations that make long rows different, measured alone: attention on one rank's heads,
// and the exchanges around it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "config/config.h"
#include "config/model_config.h"
#include "dist/process_group.h"
#include "ops/attention_calls.h"

namespace longhaul::train {

/// Attention over one row on the heads of sp rank 0, which has most.
struct AttentionMeasurement {
  std::int64_t tokens = 0;
  std::int64_t documents = 1;
  double attended_length = 0;
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::vector<double> forward_s{};
  std::vector<double> backward_s{};
  double forward_flops = 0;   // two products, the causal half
  double backward_flops = 0;  // five products, as attention kernels are compared by: 2.5 × forward
};

/// `packing_mean` as in bench_documents(); the heads of one of config.mesh.sp ranks.
AttentionMeasurement measure_attention(
    const config::Config& config, const config::ModelConfig& model, at::Device device,
    std::int64_t tokens, std::optional<std::int64_t> packing_mean,
    ops::AttentionKernels kernels = ops::AttentionKernels::kFastest);

/// One exchange of all ranks: seconds of the slowest, bytes that one rank sends (mean).
struct ExchangeTimes {
  std::vector<double> seconds{};
  double bytes = 0;
};

/// Queries, keys and values to the heads' ranks, and the attention's output back.
struct ExchangeMeasurement {
  std::int64_t tokens = 0;
  bool through_peers = false;  // written into the peers' memory; else messages
  ExchangeTimes qkv{};
  ExchangeTimes output{};
};

/// With `through_peers` where the ranks can write into one another's memory, else by messages.
/// Collective over all ranks of `group`.
ExchangeMeasurement measure_exchange(const config::Config& config, const config::ModelConfig& model,
                                     const dist::ProcessGroup& group, at::Device device,
                                     std::int64_t tokens, bool through_peers);

}  // namespace longhaul::train
