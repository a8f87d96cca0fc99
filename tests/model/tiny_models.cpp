#include "model/tiny_models.h"

#include <ATen/ops/empty.h>

#include "base/file.h"
#include "base/rng.h"
#include "text/tokenized_sample.h"

namespace longhaul::testing {

config::ModelConfig tiny_model(const std::string& name) {
  config::ModelConfig model;
  model.hidden_size = 24;
  model.num_layers = 2;
  model.intermediate_size = 36;
  model.vocab_size = 50;
  model.max_position_embeddings = 256;
  model.rms_norm_eps = 1e-5;
  model.rope.theta = 10000;
  model.head_dim = 6;
  model.num_heads = 4;
  model.num_kv_heads = 4;
  if (name == "qwen2" || name == "qwen2_tied") {
    model.family = config::ModelFamily::kQwen2;
    model.qkv_bias = true;
    model.num_heads = name == "qwen2" ? 8 : 6;
    model.num_kv_heads = 2;
    model.head_dim = 4;
    model.tie_word_embeddings = name == "qwen2_tied";
  } else if (name == "qwen3") {
    model.family = config::ModelFamily::kQwen3;
    model.qk_norm = true;
    model.num_kv_heads = 2;
    model.head_dim = 10;
  } else if (name == "smol") {
    model.num_heads = 9;
    model.num_kv_heads = 3;
    model.head_dim = 4;
    model.tie_word_embeddings = true;
  } else if (name == "aligned") {
    model.hidden_size = 64;
    model.intermediate_size = 128;
    model.num_kv_heads = 2;
    model.head_dim = 32;
  }
  return model;
}

config::TuningSpec tiny_tuning(const config::ModelConfig& model, Tuning tuning) {
  config::TuningSpec spec;
  if (tuning == Tuning::kFull) {
    spec.full = true;
    return spec;
  }
  const std::vector<std::string> targets = {"all-linear"};
  spec.lora = config::LoraSpec{.rank = model.hidden_size % 64 == 0 ? 8 : 4,
                               .alpha = 8,
                               .dropout = 0,
                               .target_modules = config::resolve_target_modules(model, targets)};
  return spec;
}

void randomise(model::Parameters& parameters, std::uint64_t seed) {
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    if (spec.tied_to) {
      continue;
    }
    const std::uint64_t stream = std::stoull(base::checksum_text(spec.name), nullptr, 16);
    const base::CounterRng rng(seed, base::RngPurpose::kBenchWeights, stream);
    at::Tensor values = at::empty(spec.shape, at::kFloat);
    auto* data = values.data_ptr<float>();
    const bool norm = spec.kind == config::ParamKind::kNorm;
    const float scale = spec.kind == config::ParamKind::kEmbedding ? 2.0F : 0.6F;
    for (std::int64_t k = 0; k < values.numel(); ++k) {
      const float unit = rng.uniform(static_cast<std::uint64_t>(k)) - 0.5F;
      data[k] = norm ? 1.0F + unit : unit * scale;
    }
    parameters.assign(static_cast<std::int64_t>(i), values);
  }
}

Document make_document(std::int64_t length, std::int64_t first_target, std::int64_t vocab,
                       std::uint64_t seed) {
  const base::CounterRng rng(seed, base::RngPurpose::kSampling);
  Document document;
  for (std::int64_t i = 0; i < length; ++i) {
    const auto id = static_cast<std::int32_t>(
        rng.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(vocab)));
    document.ids.push_back(id);
    document.labels.push_back(i >= first_target && i > 0 ? id : text::kNoLabel);
  }
  return document;
}

data::PackedBatch make_row(const std::vector<Document>& documents, std::int64_t first_sample) {
  data::PackedBatch row;
  row.cu_seqlens.push_back(0);
  for (const Document& document : documents) {
    for (std::size_t i = 0; i < document.ids.size(); ++i) {
      row.ids.push_back(document.ids[i]);
      row.labels.push_back(i + 1 < document.ids.size() ? document.labels[i + 1] : text::kNoLabel);
      row.positions.push_back(static_cast<std::int32_t>(i));
    }
    row.cu_seqlens.push_back(static_cast<std::int32_t>(row.ids.size()));
    row.sample_ids.push_back(first_sample + static_cast<std::int64_t>(row.sample_ids.size()));
  }
  return row;
}

Rows composite_step(std::int64_t vocab) {
  return {{make_document(1, 0, vocab, 11), make_document(11, 3, vocab, 12),
           make_document(12, 12, vocab, 13), make_document(12, 5, vocab, 14),
           make_document(12, 1, vocab, 15)},
          {make_document(17, 6, vocab, 16), make_document(2, 1, vocab, 17)},
          {make_document(9, 9, vocab, 18)}};
}

std::vector<data::PackedBatch> flatten(const Rows& rows) {
  std::vector<data::PackedBatch> flat;
  std::int64_t sample = 0;
  for (const auto& documents : rows) {
    flat.push_back(make_row(documents, sample));
    sample += static_cast<std::int64_t>(documents.size());
  }
  return flat;
}

std::vector<data::PackedBatch> one_document_at_a_time(const Rows& rows) {
  std::vector<data::PackedBatch> flat;
  for (const auto& documents : rows) {
    for (const Document& document : documents) {
      flat.push_back(make_row({document}, static_cast<std::int64_t>(flat.size())));
    }
  }
  return flat;
}

}  // namespace longhaul::testing
