#include "model/weight_store.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "model/slab_linear.h"

namespace longhaul::model {
namespace {

/// Looks parameters up by name and builds the pieces of a layer.
class LayerBuilder {
 public:
  LayerBuilder(const Parameters& parameters, std::int64_t layer, double lora_scale)
      : parameters_(parameters),
        prefix_(fmt::format("model.layers.{}.", layer)),
        lora_scale_(lora_scale) {}

  [[nodiscard]] NormWeight norm(std::string_view name) const {
    const std::int64_t param = parameters_.find(fmt::format("{}{}.weight", prefix_, name));
    if (param < 0) {
      return {};
    }
    return {parameters_.compute(param), trained(param) ? param : -1};
  }

  [[nodiscard]] std::unique_ptr<Linear> linear(std::span<const std::string_view> modules) const {
    std::vector<std::int64_t> weights;
    std::vector<std::int64_t> biases;
    std::vector<std::int64_t> lora_as;
    std::vector<LinearMember> members;
    std::int64_t outputs = 0;
    std::int64_t lora_columns = 0;
    for (const std::string_view module : modules) {
      LinearMember member = find_member(module);
      const std::int64_t rows = parameters_.compute(member.weight).size(0);
      member.outputs = {outputs, outputs + rows};
      outputs += rows;
      member.lora_columns = {lora_columns, lora_columns};
      if (member.lora_a_param >= 0) {
        member.lora_columns.end += parameters_.compute(member.lora_a_param).size(0);
        lora_columns = member.lora_columns.end;
        lora_as.push_back(member.lora_a_param);
      }
      weights.push_back(member.weight);
      if (member.bias >= 0) {
        biases.push_back(member.bias);
      }
      members.push_back(std::move(member));
    }
    LONGHAUL_ASSERT(biases.empty() || biases.size() == weights.size(),
                    "all members of a linear group have a bias, or none");
    at::Tensor bias = biases.empty() ? at::Tensor() : parameters_.fused(biases);
    if (const Slab* slab = parameters_.slab(weights.front())) {
      return std::make_unique<SlabLinear>(*slab, std::move(bias), lora_scale_, std::move(members));
    }
    return std::make_unique<SeparateLinear>(
        parameters_.fused(weights), std::move(bias),
        lora_as.empty() ? at::Tensor() : parameters_.fused(lora_as), lora_scale_,
        std::move(members));
  }

 private:
  [[nodiscard]] bool trained(std::int64_t param) const {
    return param >= 0 && parameters_.registry()[static_cast<std::size_t>(param)].trainable;
  }

  [[nodiscard]] LinearMember find_member(std::string_view module) const {
    const std::string base = fmt::format("{}{}.", prefix_, module);
    LinearMember member;
    member.weight = parameters_.find(base + "weight");
    member.bias = parameters_.find(base + "bias");
    member.lora_a_param = parameters_.find(base + "lora_A.weight");
    member.lora_b_param = parameters_.find(base + "lora_B.weight");
    LONGHAUL_ASSERT(member.weight >= 0, fmt::format("the registry holds {}weight", base));
    member.weight_trained = trained(member.weight);
    member.bias_trained = trained(member.bias);
    if (member.lora_b_param >= 0) {
      member.lora_b = parameters_.compute(member.lora_b_param);
    }
    return member;
  }

  const Parameters& parameters_;
  std::string prefix_;
  double lora_scale_;
};

}  // namespace

bool LayerWeights::trained() const {
  return input_norm.param >= 0 || post_norm.param >= 0 || qk_norm.q_param >= 0 ||
         qk_norm.k_param >= 0 || attention_in->trained() || attention_out->trained() ||
         mlp_in->trained() || mlp_down->trained();
}

ResidentWeightStore::ResidentWeightStore(const config::ModelConfig& model,
                                         const Parameters& parameters, double lora_scale) {
  using Modules = std::initializer_list<std::string_view>;
  const auto build = [](const LayerBuilder& builder, Modules modules) {
    return builder.linear(std::span(modules.begin(), modules.size()));
  };
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const LayerBuilder builder(parameters, layer, lora_scale);
    LayerWeights weights;
    weights.input_norm = builder.norm("input_layernorm");
    weights.post_norm = builder.norm("post_attention_layernorm");
    const NormWeight q_norm = builder.norm("self_attn.q_norm");
    const NormWeight k_norm = builder.norm("self_attn.k_norm");
    weights.qk_norm = {q_norm.weight, k_norm.weight, q_norm.param, k_norm.param};
    weights.attention_in =
        build(builder, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
    weights.attention_out = build(builder, {"self_attn.o_proj"});
    weights.mlp_in = build(builder, {"mlp.gate_proj", "mlp.up_proj"});
    weights.mlp_down = build(builder, {"mlp.down_proj"});
    layers_.push_back(std::move(weights));
  }
  const auto trained_or_none = [&](std::int64_t param) {
    return parameters.registry()[static_cast<std::size_t>(param)].trainable ? param : -1;
  };
  const std::int64_t embedding = parameters.find("model.embed_tokens.weight");
  const std::int64_t norm = parameters.find("model.norm.weight");
  const std::int64_t head = parameters.find("lm_head.weight");
  ends_.embedding = parameters.compute(embedding);
  ends_.embedding_param = trained_or_none(embedding);
  ends_.final_norm = {parameters.compute(norm), trained_or_none(norm)};
  ends_.head = parameters.compute(head);
  const bool tied = parameters.registry()[static_cast<std::size_t>(head)].tied_to.has_value();
  ends_.head_param = tied ? ends_.embedding_param : trained_or_none(head);
}

WeightLease ResidentWeightStore::acquire(std::int64_t layer, Pass /*pass*/) {
  return WeightLease(layers_[static_cast<std::size_t>(layer)]);
}

std::int64_t ResidentWeightStore::lowest_trained_layer() const {
  std::int64_t layer = 0;
  while (layer < num_layers() && !layers_[static_cast<std::size_t>(layer)].trained()) {
    ++layer;
  }
  return layer;
}

}  // namespace longhaul::model
