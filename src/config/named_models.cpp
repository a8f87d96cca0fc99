#include "config/named_models.h"

#include <array>
#include <cstddef>
#include <limits>

namespace longhaul::config {
namespace {

struct Sizes {
  std::string_view name;
  ModelFamily family;
  std::int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  bool tied;  // LM head and embedding
};

constexpr auto kLlama = ModelFamily::kLlama;
constexpr auto kQwen2 = ModelFamily::kQwen2;
constexpr auto kQwen3 = ModelFamily::kQwen3;

/// `tiny` is nobody's: it lets the program be tried where the others do not fit.
constexpr std::array kSizes = {
    Sizes{"tiny", kLlama, 2, 512, 8, 2, 64, 1024, 4096, false},
    Sizes{"smollm2-135m", kLlama, 30, 576, 9, 3, 64, 1536, 49152, true},
    Sizes{"llama3.2-1b", kLlama, 16, 2048, 32, 8, 64, 8192, 128256, true},
    Sizes{"llama3.2-3b", kLlama, 28, 3072, 24, 8, 128, 8192, 128256, true},
    Sizes{"llama3.1-8b", kLlama, 32, 4096, 32, 8, 128, 14336, 128256, false},
    Sizes{"llama3.1-70b", kLlama, 80, 8192, 64, 8, 128, 28672, 128256, false},
    Sizes{"qwen2.5-0.5b", kQwen2, 24, 896, 14, 2, 64, 4864, 151936, true},
    Sizes{"qwen2.5-1.5b", kQwen2, 28, 1536, 12, 2, 128, 8960, 151936, true},
    Sizes{"qwen2.5-3b", kQwen2, 36, 2048, 16, 2, 128, 11008, 151936, true},
    Sizes{"qwen2.5-7b", kQwen2, 28, 3584, 28, 4, 128, 18944, 152064, false},
    Sizes{"qwen2.5-14b", kQwen2, 48, 5120, 40, 8, 128, 13824, 152064, false},
    Sizes{"qwen2.5-32b", kQwen2, 64, 5120, 40, 8, 128, 27648, 152064, false},
    Sizes{"qwen2.5-72b", kQwen2, 80, 8192, 64, 8, 128, 29568, 152064, false},
    Sizes{"qwen3-0.6b", kQwen3, 28, 1024, 16, 8, 128, 3072, 151936, true},
    Sizes{"qwen3-1.7b", kQwen3, 28, 2048, 16, 8, 128, 6144, 151936, true},
    Sizes{"qwen3-4b", kQwen3, 36, 2560, 32, 8, 128, 9728, 151936, true},
    Sizes{"qwen3-8b", kQwen3, 36, 4096, 32, 8, 128, 12288, 151936, false},
    Sizes{"qwen3-14b", kQwen3, 40, 5120, 40, 8, 128, 17408, 151936, false},
    Sizes{"qwen3-32b", kQwen3, 64, 5120, 64, 8, 128, 25600, 151936, false},
};

constexpr auto names_of_sizes() {
  std::array<std::string_view, kSizes.size()> names{};
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    names[i] = kSizes[i].name;
  }
  return names;
}
constexpr auto kNames = names_of_sizes();

std::string_view model_type_of(ModelFamily family) {
  return family == kLlama ? "llama" : family == kQwen2 ? "qwen2" : "qwen3";
}

ModelConfig model_of(const Sizes& sizes) {
  ModelConfig model;
  model.family = sizes.family;
  model.model_type = model_type_of(sizes.family);
  model.num_layers = sizes.layers;
  model.hidden_size = sizes.hidden;
  model.num_heads = sizes.heads;
  model.num_kv_heads = sizes.kv_heads;
  model.head_dim = sizes.head_dim;
  model.intermediate_size = sizes.ffn;
  model.vocab_size = sizes.vocab;
  model.max_position_embeddings = std::numeric_limits<std::int32_t>::max();
  model.rope.theta = sizes.family == kLlama ? 500000.0 : 1000000.0;
  model.tie_word_embeddings = sizes.tied;
  model.qkv_bias = sizes.family == kQwen2;
  model.qk_norm = sizes.family == kQwen3;
  model.dtype = base::Dtype::kBFloat16;
  return model;
}

}  // namespace

std::optional<ModelConfig> find_named_model(std::string_view name) {
  for (const Sizes& sizes : kSizes) {
    if (sizes.name == name) {
      return model_of(sizes);
    }
  }
  return std::nullopt;
}

std::span<const std::string_view> named_models() { return kNames; }

}  // namespace longhaul::config
