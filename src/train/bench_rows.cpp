#include "train/bench_rows.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace longhaul::train {
namespace {

constexpr std::uint64_t kSeed = 42;
constexpr double kSigma = 0.8;

/// Streams of the generator; weights come from libtorch's own.
enum Stream : std::uint64_t { kTokens = 1, kLengths = 2 };

/// A standard normal value (Box and Muller).
double normal(const base::CounterRng& rng, std::uint64_t index) {
  const double radius = std::sqrt(-2 * std::log(1.0 - double{rng.uniform(2 * index)}));
  return radius * std::cos(2 * std::numbers::pi * double{rng.uniform(2 * index + 1)});
}

}  // namespace

std::vector<std::int64_t> bench_documents(std::int64_t tokens, std::optional<std::int64_t> mean) {
  if (!mean) {
    return {tokens};
  }
  const base::CounterRng rng(kSeed, base::RngPurpose::kBenchWeights, kLengths);
  const double mu = std::log(static_cast<double>(*mean)) - kSigma * kSigma / 2;
  std::vector<std::int64_t> lengths;
  for (std::int64_t left = tokens; left > 0; left -= lengths.back()) {
    const double drawn = std::exp(mu + kSigma * normal(rng, lengths.size()));
    lengths.push_back(std::clamp<std::int64_t>(std::llround(drawn), 1, left));
  }
  return lengths;
}

std::vector<std::int32_t> document_borders(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> borders = {0};
  for (const std::int64_t length : lengths) {
    borders.push_back(borders.back() + static_cast<std::int32_t>(length));
  }
  return borders;
}

data::PackedBatch bench_row(const std::vector<std::int64_t>& lengths, std::int64_t vocab_size) {
  const base::CounterRng rng(kSeed, base::RngPurpose::kBenchWeights, kTokens);
  const auto token = [&](std::size_t place) {
    return static_cast<std::int32_t>(rng.below(place, static_cast<std::uint64_t>(vocab_size)));
  };
  data::PackedBatch row;
  row.cu_seqlens = document_borders(lengths);
  for (std::size_t document = 0; document < lengths.size(); ++document) {
    for (std::int64_t place = 0; place < lengths[document]; ++place) {
      row.ids.push_back(token(row.ids.size()));
      row.labels.push_back(token(row.ids.size()));
      row.positions.push_back(static_cast<std::int32_t>(place));
    }
    row.sample_ids.push_back(static_cast<std::int64_t>(document));
  }
  return row;
}

}  // namespace longhaul::train
