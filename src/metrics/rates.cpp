#include "metrics/rates.h"

#include <algorithm>

namespace longhaul::metrics {

std::int64_t layer_matrix_weights(const ModelSizes& sizes) {
  const std::int64_t query = sizes.num_query_heads * sizes.head_dim;
  const std::int64_t key_value = 2 * sizes.num_kv_heads * sizes.head_dim;
  const std::int64_t attention = sizes.hidden * (query + key_value) + query * sizes.hidden;
  const std::int64_t mlp = 3 * sizes.hidden * sizes.intermediate;
  return sizes.num_layers * (attention + mlp);
}

std::int64_t matrix_weights(const ModelSizes& sizes) {
  return layer_matrix_weights(sizes) + sizes.hidden * sizes.vocabulary;
}

std::int64_t attention_flops_per_length(const ModelSizes& sizes) {
  return 6 * sizes.num_layers * sizes.num_query_heads * sizes.head_dim;
}

double attended_length(std::span<const std::int64_t> document_lengths) {
  double sum = 0;
  double sum_of_squares = 0;
  for (const std::int64_t length : document_lengths) {
    const auto tokens = static_cast<double>(length);
    sum += tokens;
    sum_of_squares += tokens * tokens;
  }
  return sum > 0 ? sum_of_squares / sum : 0;
}

double flops_per_token(const ModelSizes& sizes, const TrainingKind& kind, double attended) {
  const auto layers = static_cast<double>(layer_matrix_weights(sizes));
  const auto head = static_cast<double>(matrix_weights(sizes)) - layers;
  const double used_weights = layers + kind.lm_head_share * head;
  const double attention = static_cast<double>(attention_flops_per_length(sizes)) * attended;
  if (kind.base_is_trained) {
    return 6 * used_weights + attention;
  }
  return 4 * used_weights + 6 * static_cast<double>(kind.lora_weights) + attention;
}

double model_flops_utilisation(double tokens_per_s, double flops_per_token,
                               double peak_flops_per_s) {
  return peak_flops_per_s > 0 ? tokens_per_s * flops_per_token / peak_flops_per_s : 0;
}

Spread spread_of(std::vector<double> measurements) {
  if (measurements.empty()) {
    return {};
  }
  std::sort(measurements.begin(), measurements.end());
  const std::size_t count = measurements.size();
  const double median = (measurements[(count - 1) / 2] + measurements[count / 2]) / 2;
  return {.median = median, .least = measurements.front(), .most = measurements.back()};
}

double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

double gib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0); }

}  // namespace longhaul::metrics
