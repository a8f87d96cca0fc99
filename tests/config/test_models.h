// Small model shapes for the tests of this folder.
#pragma once

#include "config/model_config.h"

namespace longhaul::config::testing_models {

/// 2 layers, hidden 24, 6 query and 2 KV heads of width 4, tied embeddings, q/k/v biases.
inline ModelConfig tied_qwen2() {
  ModelConfig model;
  model.family = ModelFamily::kQwen2;
  model.hidden_size = 24;
  model.num_layers = 2;
  model.num_heads = 6;
  model.num_kv_heads = 2;
  model.head_dim = 4;
  model.intermediate_size = 40;
  model.vocab_size = 50;
  model.max_position_embeddings = 128;
  model.tie_word_embeddings = true;
  model.qkv_bias = true;
  return model;
}

/// As above with own head width 8, q/k norms, no bias, untied.
inline ModelConfig qwen3() {
  ModelConfig model = tied_qwen2();
  model.family = ModelFamily::kQwen3;
  model.head_dim = 8;
  model.tie_word_embeddings = false;
  model.qkv_bias = false;
  model.qk_norm = true;
  return model;
}

}  // namespace longhaul::config::testing_models
