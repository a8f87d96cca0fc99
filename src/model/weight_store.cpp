#include "model/weight_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "model/slab_linear.h"

namespace longhaul::model {
namespace {

/// Looks parameters up by name and builds the pieces of a layer.
class LayerBuilder {
 public:
  LayerBuilder(const Parameters& parameters, std::int64_t layer, double lora_scale,
               const GroupMatrix& sharded)
      : parameters_(parameters),
        prefix_(fmt::format("model.layers.{}.", layer)),
        lora_scale_(lora_scale),
        sharded_(sharded) {}

  [[nodiscard]] NormWeight norm(std::string_view name) const {
    const std::int64_t param = parameters_.find(fmt::format("{}{}.weight", prefix_, name));
    if (param < 0) {
      return {};
    }
    return {parameters_.compute(param), trained(param) ? param : -1};
  }

  [[nodiscard]] std::unique_ptr<Linear> linear(
      std::initializer_list<std::string_view> modules) const {
    std::vector<std::int64_t> weights;
    std::vector<std::int64_t> biases;
    std::vector<std::int64_t> lora_as;
    std::vector<LinearMember> members;
    std::int64_t outputs = 0;
    std::int64_t lora_columns = 0;
    for (const std::string_view module : modules) {
      LinearMember member = find_member(module);
      const std::int64_t rows = rows_of(member.weight);
      member.outputs = {outputs, outputs + rows};
      outputs += rows;
      member.lora_columns = {lora_columns, lora_columns};
      if (member.lora_a_param >= 0) {
        member.lora_columns.end += rows_of(member.lora_a_param);
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
    const Slab* slab = parameters_.slab(weights.front());
    const Shard* shard = parameters_.shard(weights.front());
    const at::Tensor gathered = shard != nullptr ? sharded_(*shard, members) : at::Tensor();
    if (slab != nullptr || (shard != nullptr && shard->room > 0)) {
      return std::make_unique<SlabLinear>(
          slab != nullptr ? *slab : Slab{gathered, shard->outputs, shard->inputs, shard->room},
          std::move(bias), lora_scale_, std::move(members));
    }
    return std::make_unique<SeparateLinear>(
        shard != nullptr ? gathered : parameters_.fused(weights), std::move(bias),
        lora_as.empty() ? at::Tensor() : parameters_.fused(lora_as), lora_scale_,
        std::move(members));
  }

 private:
  [[nodiscard]] bool trained(std::int64_t param) const {
    return param >= 0 && parameters_.registry()[static_cast<std::size_t>(param)].trainable;
  }

  [[nodiscard]] std::int64_t rows_of(std::int64_t param) const {
    return parameters_.registry()[static_cast<std::size_t>(param)].shape[0];
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
  const GroupMatrix& sharded_;
};

}  // namespace

bool LayerWeights::trained() const {
  return input_norm.param >= 0 || post_norm.param >= 0 || qk_norm.q_param >= 0 ||
         qk_norm.k_param >= 0 || attention_in->trained() || attention_out->trained() ||
         mlp_in->trained() || mlp_down->trained();
}

LayerWeights layer_weights(const Parameters& parameters, std::int64_t layer, double lora_scale,
                           const GroupMatrix& sharded) {
  const LayerBuilder builder(parameters, layer, lora_scale, sharded);
  LayerWeights weights;
  weights.input_norm = builder.norm("input_layernorm");
  weights.post_norm = builder.norm("post_attention_layernorm");
  const NormWeight q_norm = builder.norm("self_attn.q_norm");
  const NormWeight k_norm = builder.norm("self_attn.k_norm");
  weights.qk_norm = {q_norm.weight, k_norm.weight, q_norm.param, k_norm.param};
  weights.attention_in =
      builder.linear({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
  weights.attention_out = builder.linear({"self_attn.o_proj"});
  weights.mlp_in = builder.linear({"mlp.gate_proj", "mlp.up_proj"});
  weights.mlp_down = builder.linear({"mlp.down_proj"});
  return weights;
}

EndWeights end_weights(const Parameters& parameters) {
  const auto trained_or_none = [&](std::int64_t param) {
    return parameters.registry()[static_cast<std::size_t>(param)].trainable ? param : -1;
  };
  const std::int64_t embedding = parameters.find("model.embed_tokens.weight");
  const std::int64_t norm = parameters.find("model.norm.weight");
  const std::int64_t head = parameters.find("lm_head.weight");
  EndWeights ends;
  ends.embedding = parameters.compute(embedding);
  ends.embedding_param = trained_or_none(embedding);
  ends.final_norm = {parameters.compute(norm), trained_or_none(norm)};
  ends.head = parameters.compute(head);
  const bool tied = parameters.registry()[static_cast<std::size_t>(head)].tied_to.has_value();
  ends.head_param = tied ? ends.embedding_param : trained_or_none(head);
  return ends;
}

ResidentWeightStore::ResidentWeightStore(const config::ModelConfig& model,
                                         const Parameters& parameters, double lora_scale)
    : ends_(end_weights(parameters)) {
  const auto whole = [](const Shard& /*shard*/, std::span<const LinearMember> /*members*/) {
    LONGHAUL_ASSERT(false, "a resident store has whole weights");
    return at::Tensor();
  };
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    layers_.push_back(layer_weights(parameters, layer, lora_scale, whole));
  }
}

WeightLease ResidentWeightStore::acquire(std::int64_t layer, Pass /*pass*/) {
  return WeightLease(layers_[static_cast<std::size_t>(layer)]);
}

std::int64_t ResidentWeightStore::lowest_trained_layer() const {
  const auto lowest = std::find_if(layers_.begin(), layers_.end(),
                                   [](const LayerWeights& layer) { return layer.trained(); });
  return lowest - layers_.begin();
}

}  // namespace longhaul::model
