#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace longhaul::infer {
namespace {

/// A candidate and its probability before normalisation.
struct Candidate {
  double weight = 0;
  std::int32_t id = 0;
};

std::int32_t likeliest(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) {
      best = i;
    }
  }
  return static_cast<std::int32_t>(best);
}

/// Uniform in [0, 1) with 53 bits.
double draw(const SamplingOptions& options, std::int64_t row, std::int64_t position) {
  const base::CounterRng rng(options.seed, base::RngPurpose::kSampling,
                             static_cast<std::uint64_t>(row));
  constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2⁻⁵³
  return static_cast<double>(rng.bits64(static_cast<std::uint64_t>(position)) >> 11U) * kUnit;
}

/// Keeps the likeliest candidates whose probabilities reach `top_p` together, at least one.
void keep_likeliest(std::vector<Candidate>& candidates, double top_p) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  });
  const double total = std::accumulate(
      candidates.begin(), candidates.end(), 0.0,
      [](double sum, const Candidate& candidate) { return sum + candidate.weight; });
  double sum = 0;
  std::size_t kept = 0;
  while (kept < candidates.size() && sum < top_p * total) {
    sum += candidates[kept].weight;
    ++kept;
  }
  candidates.resize(std::max<std::size_t>(kept, 1));
}

}  // namespace

std::int32_t choose_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t row, std::int64_t position) {
  LONGHAUL_ASSERT(!logits.empty(), "there is a vocabulary");
  const std::int32_t best = likeliest(logits);
  const double highest = logits[static_cast<std::size_t>(best)];
  const bool has_nan =
      std::any_of(logits.begin(), logits.end(), [](float value) { return std::isnan(value); });
  if (has_nan || !std::isfinite(highest)) {
    throw base::UserError({.where = "generation",
                           .what = "the model's output is not finite",
                           .hint = "Use --torch_dtype float32; if that does not help, the weights "
                                   "are damaged"});
  }
  if (options.temperature == 0) {
    return best;
  }
  std::vector<Candidate> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    candidates[i] = {std::exp((static_cast<double>(logits[i]) - highest) / options.temperature),
                     static_cast<std::int32_t>(i)};
  }
  if (options.top_p < 1) {
    keep_likeliest(candidates, options.top_p);
  }
  double total = 0;
  for (const Candidate& candidate : candidates) {
    total += candidate.weight;
  }
  const double target = draw(options, row, position) * total;
  double sum = 0;
  std::int32_t chosen = best;  // rounding may leave the sum a hair below the target
  for (const Candidate& candidate : candidates) {
    if (candidate.weight == 0) {
      continue;
    }
    sum += candidate.weight;
    chosen = candidate.id;
    if (sum > target) {
      break;
    }
  }
  return chosen;
}

}  // namespace longhaul::infer
