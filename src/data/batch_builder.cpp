#include "data/batch_builder.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "base/error.h"

namespace longhaul::data {
namespace {

/// Calls `use` with the samples of every group and micro-batch of the step.
template <typename Use>
void for_batches(const StepPlan& plan, const Use& use) {
  for (const auto& groups : plan.micros) {
    for (const SampleList& samples : groups) {
      use(samples);
    }
  }
}

}  // namespace

std::int64_t PackedBatch::num_targets() const {
  return std::count_if(labels.begin(), labels.end(),
                       [](std::int32_t label) { return label != text::kNoLabel; });
}

PackedBatch build_batch(const TokenStore& store, std::span<const std::int64_t> samples) {
  std::int64_t tokens = 0;
  for (const std::int64_t sample : samples) {
    tokens += store.length(sample);
  }
  LONGHAUL_ASSERT(tokens <= INT32_MAX, "a batch has fewer than 2^31 tokens");
  PackedBatch batch;
  const auto total = static_cast<std::size_t>(tokens);
  batch.ids.reserve(total);
  batch.labels.reserve(total);
  batch.positions.reserve(total);
  batch.cu_seqlens.reserve(samples.size() + 1);
  batch.cu_seqlens.push_back(0);
  batch.sample_ids.assign(samples.begin(), samples.end());
  for (const std::int64_t sample : samples) {
    const text::TokenizedSample document = store.read(sample);
    const auto length = static_cast<std::int32_t>(document.ids.size());
    batch.ids.insert(batch.ids.end(), document.ids.begin(), document.ids.end());
    batch.labels.insert(batch.labels.end(), document.labels.begin() + 1, document.labels.end());
    batch.labels.push_back(text::kNoLabel);
    for (std::int32_t position = 0; position < length; ++position) {
      batch.positions.push_back(position);
    }
    batch.cu_seqlens.push_back(batch.cu_seqlens.back() + length);
  }
  return batch;
}

std::int64_t count_targets(const TokenStore& store, std::span<const std::int64_t> samples) {
  std::int64_t targets = 0;
  for (const std::int64_t sample : samples) {
    targets += store.num_targets(sample);
  }
  return targets;
}

std::int64_t count_targets(const TokenStore& store, const StepPlan& plan) {
  std::int64_t targets = 0;
  for_batches(plan, [&](const SampleList& samples) { targets += count_targets(store, samples); });
  return targets;
}

std::int64_t count_tokens(const TokenStore& store, const StepPlan& plan) {
  const std::vector<std::int64_t> lengths = document_lengths(store, plan);
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::vector<std::int64_t> document_lengths(const TokenStore& store, const StepPlan& plan) {
  std::vector<std::int64_t> lengths;
  for_batches(plan, [&](const SampleList& samples) {
    for (const std::int64_t sample : samples) {
      lengths.push_back(store.length(sample));
    }
  });
  return lengths;
}

}  // namespace longhaul::data
