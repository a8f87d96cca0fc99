// A model shape for the plan's tests: Qwen2.5-7B with LoRA r16 on every linear layer, bf16.
#pragma once

#include <vector>

#include "plan/memory_plan.h"

namespace longhaul::testing {

inline config::ModelConfig qwen_7b() {
  config::ModelConfig model;
  model.family = config::ModelFamily::kQwen2;
  model.model_type = "qwen2";
  model.hidden_size = 3584;
  model.num_layers = 28;
  model.num_heads = 28;
  model.num_kv_heads = 4;
  model.head_dim = 128;
  model.intermediate_size = 18944;
  model.vocab_size = 152064;
  model.max_position_embeddings = 131072;
  model.qkv_bias = true;
  return model;
}

inline std::vector<config::ParamSpec> lora_registry(const config::ModelConfig& model) {
  const std::vector<std::string> targets = {"all-linear"};
  config::TuningSpec spec;
  spec.lora = config::LoraSpec{.rank = 16,
                               .target_modules = config::resolve_target_modules(model, targets)};
  return config::build_registry(model, spec);
}

}  // namespace longhaul::testing
