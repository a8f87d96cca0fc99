// What config.json of a Hugging Face model folder says, in our own terms. Anything in it that
// changes the mathematics and that we do not implement is a UserError by name, never ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace longhaul::config {

enum class ModelFamily { kLlama, kMistral, kQwen2, kQwen3 };

/// Rotary position embedding: inverse frequency i of d/2 is theta^(-2i/d), rescaled per `type`.
struct RopeConfig {
  enum class Type { kDefault, kLlama3, kLinear };
  Type type = Type::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                                // llama3, linear
  double low_freq_factor = 1.0;                       // llama3
  double high_freq_factor = 4.0;                      // llama3
  std::int64_t original_max_position_embeddings = 0;  // llama3
};

/// Shapes and switches of one decoder-only model. Invariant: num_heads % num_kv_heads == 0, all
/// sizes ≥ 1.
struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  std::string model_type;  // as written, for messages
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;  // query heads
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;  // rows of the embedding
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // q, k, v projections
  bool o_bias = false;    // attention output projection
  bool mlp_bias = false;  // gate, up, down
  bool qk_norm = false;   // RMSNorm over head_dim of q and k (Qwen3)
  base::Dtype dtype =
      base::Dtype::kFloat32;  // torch_dtype / dtype of the file; float32 when absent
  std::vector<std::int64_t>
      eos_token_ids;  // config.json, overridden by generation_config.json when present
  std::optional<std::int64_t> bos_token_id;
  std::optional<std::int64_t> pad_token_id;
  std::vector<std::string> unknown_keys;  // `file:line: key` of keys that nothing here reads

  [[nodiscard]] std::int64_t q_width() const { return num_heads * head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return num_kv_heads * head_dim; }
};

/// Reads `folder`/config.json (transformers 4 and 5 spellings) and generation_config.json if
/// present. UserError listing every problem at once with file:line where it can be told.
ModelConfig read_model_config(const std::filesystem::path& folder);

/// The same from the text of a config.json; `where` is used in messages.
ModelConfig parse_model_config(std::string_view text, const std::string& where);

/// The d/2 inverse frequencies in fp32, computed in double as transformers does (llama3 scaling
/// included).
std::vector<float> rope_inverse_frequencies(const ModelConfig& model);

}  // namespace longhaul::config
