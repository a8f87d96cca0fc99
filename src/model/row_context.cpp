#include "model/row_context.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "model/row_parts.h"

namespace longhaul::model {

RowContext::RowContext(const dist::LocalBatch& batch, const config::ModelConfig& model,
                       const RandomAddress& random, at::Device device)
    : batch_(&batch), random_(random) {
  const std::vector<float> frequencies = config::rope_inverse_frequencies(model);
  // Attention sees the whole row and, with q/k norm, rotates it there, so the table covers it;
  // positions restart at every document.
  std::vector<std::int32_t> positions(static_cast<std::size_t>(batch.row_tokens()));
  for (std::size_t doc = 0; doc + 1 < batch.cu_seqlens.size(); ++doc) {
    std::iota(positions.begin() + batch.cu_seqlens[doc],
              positions.begin() + batch.cu_seqlens[doc + 1], 0);
  }
  rope_ = ops::make_rope_table(positions, frequencies, device);
  const std::int64_t begin = batch.my_tokens.begin;
  local_rope_ = {.cosine = rope_.cosine.narrow(0, begin, local_tokens()),
                 .sine = rope_.sine.narrow(0, begin, local_tokens())};
  if (random.lora_dropout == 0 && random.neftune_alpha == 0) {
    return;
  }
  row_keys_.reserve(positions.size());
  for (std::size_t doc = 0; doc < batch.sample_ids.size(); ++doc) {
    const auto length = batch.cu_seqlens[doc + 1] - batch.cu_seqlens[doc];
    // Samples are fewer than 2³¹ and documents shorter than 2³²: the pair is one word.
    const std::uint64_t sample = static_cast<std::uint64_t>(batch.sample_ids[doc]) << 32;
    for (std::int32_t position = 0; position < length; ++position) {
      row_keys_.push_back(sample | static_cast<std::uint32_t>(position));
    }
  }
  if (random.lora_dropout > 0 && !device.is_cpu()) {
    device_keys_ = ops::keys_on_device(row_keys_, device);
  }
}

std::uint64_t RowContext::seed_key(std::uint32_t purpose, std::int64_t layer,
                                   std::uint32_t input) const {
  const base::CounterRng rng(random_.seed, static_cast<base::RngPurpose>(purpose),
                             static_cast<std::uint64_t>(random_.epoch));
  return rng.bits64(static_cast<std::uint64_t>(layer) * 8 + input);
}

LoraDropout RowContext::local_dropout(std::int64_t layer, LayerInput input) const {
  return of_rows(row_dropout(layer, input), batch_->my_tokens);
}

LoraDropout RowContext::row_dropout(std::int64_t layer, LayerInput input) const {
  if (random_.lora_dropout == 0) {
    return std::nullopt;
  }
  return ops::DropoutKeys{
      .row_keys = row_keys_,
      .on_device = device_keys_,
      .seed_key = seed_key(static_cast<std::uint32_t>(base::RngPurpose::kDropout), layer,
                           static_cast<std::uint32_t>(input)),
      .probability = static_cast<float>(random_.lora_dropout)};
}

void RowContext::add_neftune(const at::Tensor& embeddings) const {
  if (random_.neftune_alpha == 0) {
    return;
  }
  // Magnitude alpha / sqrt(L·h) with the document's own length L (arXiv:2310.05914).
  std::vector<float> magnitude;
  magnitude.reserve(static_cast<std::size_t>(row_tokens()));
  for (std::size_t doc = 0; doc < batch_->sample_ids.size(); ++doc) {
    const auto length = batch_->cu_seqlens[doc + 1] - batch_->cu_seqlens[doc];
    const double size = static_cast<double>(length) * static_cast<double>(embeddings.size(1));
    magnitude.insert(magnitude.end(), static_cast<std::size_t>(length),
                     static_cast<float>(random_.neftune_alpha / std::sqrt(size)));
  }
  const auto begin = static_cast<std::size_t>(batch_->my_tokens.begin);
  const auto count = static_cast<std::size_t>(local_tokens());
  ops::add_uniform_noise(embeddings, std::span(row_keys_).subspan(begin, count),
                         std::span<const float>(magnitude).subspan(begin, count),
                         seed_key(static_cast<std::uint32_t>(base::RngPurpose::kNeftune), 0, 0));
}

}  // namespace longhaul::model
