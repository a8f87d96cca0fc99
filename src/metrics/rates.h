// Throughput and model FLOPs utilisation, one convention: per token, full fine-tune 6·N +
// 6·L·Hq·d·s; with a frozen base 4·N + 6·N_lora + 6·L·Hq·d·s. N counts matrix-multiplied weights
// (layers and LM head, not the embedding), s is the attended length (causal half), re-computation
// is not counted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhaul::metrics {

/// Dense bf16 peak of one H200, FLOP/s.
constexpr double kPeakFlopsH200 = 989e12;

/// The sizes that the count needs.
struct ModelSizes {
  std::int64_t num_layers = 0;
  std::int64_t hidden = 0;
  std::int64_t num_query_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocabulary = 0;
};

/// Matrix-multiplied weights of all layers, without the LM head.
std::int64_t layer_matrix_weights(const ModelSizes& sizes);
/// N of the formula: all layers and the LM head.
std::int64_t matrix_weights(const ModelSizes& sizes);
/// 6·L·Hq·d: FLOPs per token and per token of attended length.
std::int64_t attention_flops_per_length(const ModelSizes& sizes);

/// s of the formula for documents of these lengths: Σ len² / Σ len (a single document: its length);
/// 0 without tokens.
double attended_length(std::span<const std::int64_t> document_lengths);

/// What is trained and how much of the LM head is computed.
struct TrainingKind {
  /// Weights of the adapters; used when the base is frozen.
  std::int64_t lora_weights = 0;
  bool base_is_trained = false;
  /// Rows whose logits are computed / all rows: 1 when the LM head covers every row.
  double lm_head_share = 1.0;
};

/// Model FLOPs per token, forward and backward.
double flops_per_token(const ModelSizes& sizes, const TrainingKind& kind, double attended);

/// Share of the peak that useful FLOPs reach; tokens_per_s is per device.
double model_flops_utilisation(double tokens_per_s, double flops_per_token,
                               double peak_flops_per_s);

/// Of several measurements: the middle one (of an even number, the mean of the middle two) and the ends.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
};
/// Zeros without measurements.
Spread spread_of(std::vector<double> measurements);

/// count / seconds, 0 when no time has passed.
double per_second(double count, double seconds);

/// Bytes as GiB (2^30).
double gib(std::uint64_t bytes);

}  // namespace longhaul::metrics
