#include "config/module_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace longhaul::config {
namespace {

constexpr std::array<std::string_view, 7> kLinearModules = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

struct LinearShape {
  std::int64_t out = 0;
  std::int64_t in = 0;
  bool bias = false;
};

ParamSpec make_param(std::string name, std::vector<std::int64_t> shape, ParamKind kind,
                     std::int64_t layer) {
  ParamSpec param;
  param.name = std::move(name);
  param.shape = std::move(shape);
  param.kind = kind;
  param.layer = layer;
  // Decay pulls matrices to zero; biases and norm weights are not matrices.
  param.decay = kind != ParamKind::kBias && kind != ParamKind::kNorm;
  return param;
}

void append_linear(std::vector<ParamSpec>& params, const std::string& module,
                   const LinearShape& linear, std::int64_t layer) {
  params.push_back(
      make_param(module + ".weight", {linear.out, linear.in}, ParamKind::kLinearWeight, layer));
  if (linear.bias) {
    params.push_back(make_param(module + ".bias", {linear.out}, ParamKind::kBias, layer));
  }
}

void append_layer(std::vector<ParamSpec>& params, const ModelConfig& model, std::int64_t layer) {
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t inner = model.intermediate_size;
  const auto name = [layer](std::string_view module) { return layer_module(layer, module); };
  const auto norm = [&](std::string_view module, std::int64_t size) {
    params.push_back(make_param(name(module) + ".weight", {size}, ParamKind::kNorm, layer));
  };
  append_linear(params, name("self_attn.q_proj"), {model.q_width(), hidden, model.qkv_bias}, layer);
  append_linear(params, name("self_attn.k_proj"), {model.kv_width(), hidden, model.qkv_bias},
                layer);
  append_linear(params, name("self_attn.v_proj"), {model.kv_width(), hidden, model.qkv_bias},
                layer);
  append_linear(params, name("self_attn.o_proj"), {hidden, model.q_width(), model.o_bias}, layer);
  if (model.qk_norm) {
    norm("self_attn.q_norm", model.head_dim);
    norm("self_attn.k_norm", model.head_dim);
  }
  append_linear(params, name("mlp.gate_proj"), {inner, hidden, model.mlp_bias}, layer);
  append_linear(params, name("mlp.up_proj"), {inner, hidden, model.mlp_bias}, layer);
  append_linear(params, name("mlp.down_proj"), {hidden, inner, model.mlp_bias}, layer);
  norm("input_layernorm", hidden);
  norm("post_attention_layernorm", hidden);
}

}  // namespace

std::span<const std::string_view> layer_linear_modules() { return kLinearModules; }

std::string layer_module(std::int64_t layer, std::string_view inner) {
  return fmt::format("model.layers.{}.{}", layer, inner);
}

std::vector<std::string> all_module_names(const ModelConfig& model) {
  std::vector<std::string> names = {"model", std::string(kEmbeddingModule), "model.layers"};
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    names.push_back(fmt::format("model.layers.{}", layer));
    names.push_back(layer_module(layer, "self_attn"));
    for (const std::string_view inner : kLinearModules) {
      if (inner == "mlp.gate_proj") {
        if (model.qk_norm) {
          names.push_back(layer_module(layer, "self_attn.q_norm"));
          names.push_back(layer_module(layer, "self_attn.k_norm"));
        }
        names.push_back(layer_module(layer, "mlp"));
      }
      names.push_back(layer_module(layer, inner));
    }
    names.push_back(layer_module(layer, "mlp.act_fn"));
    names.push_back(layer_module(layer, "input_layernorm"));
    names.push_back(layer_module(layer, "post_attention_layernorm"));
  }
  names.insert(names.end(), {"model.norm", "model.rotary_emb", std::string(kHeadModule)});
  return names;
}

std::vector<std::string> linear_module_names(const ModelConfig& model) {
  std::vector<std::string> names;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    for (const std::string_view inner : kLinearModules) {
      names.push_back(layer_module(layer, inner));
    }
  }
  return names;
}

bool is_inside_module(std::string_view name, std::string_view module) {
  return name == module ||
         (name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.');
}

std::vector<std::string> saved_modules(const ModelConfig& model,
                                       std::span<const std::string> endings) {
  const std::vector<std::string> modules = all_module_names(model);
  std::vector<base::Problem> problems;
  std::vector<std::string> saved;
  for (const std::string& ending : endings) {
    bool found = false;
    for (const std::string& module : modules) {
      const bool has_parameters = !module.ends_with(".act_fn") && !module.ends_with(".rotary_emb");
      if (!ending.empty() && has_parameters && module.ends_with(ending)) {
        found = true;
        saved.push_back(module);
      }
    }
    if (!found) {
      problems.push_back({.where = "--modules_to_save",
                          .what = "no module of this model ends in this name",
                          .got = ending,
                          .hint = "For example embed_tokens, lm_head"});
    }
  }
  if (!problems.empty()) {
    throw base::UserError(std::move(problems));
  }
  return saved;
}

std::vector<ParamSpec> base_parameters(const ModelConfig& model) {
  const std::vector<std::int64_t> table = {model.vocab_size, model.hidden_size};
  std::vector<ParamSpec> params;
  params.push_back(make_param("model.embed_tokens.weight", table, ParamKind::kEmbedding, -1));
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    append_layer(params, model, layer);
  }
  params.push_back(make_param("model.norm.weight", {model.hidden_size}, ParamKind::kNorm, -1));
  params.push_back(make_param("lm_head.weight", table, ParamKind::kHead, -1));
  if (model.tie_word_embeddings) {
    params.back().tied_to = "model.embed_tokens.weight";
  }
  return params;
}

}  // namespace longhaul::config
