#include "model/reference_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "text/tokenized_sample.h"

namespace longhaul::testing {
namespace {

using Weights = std::map<std::string, at::Tensor>;

struct Formula {
  const config::ModelConfig& model;
  const Weights& weights;
  double lora_scale;

  [[nodiscard]] at::Tensor get(const std::string& name) const { return weights.at(name); }

  [[nodiscard]] at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor variance = x.pow(2).mean(-1, true);
    return x * at::rsqrt(variance + model.rms_norm_eps) * get(name);
  }

  [[nodiscard]] at::Tensor linear(const at::Tensor& x, const std::string& module) const {
    at::Tensor y = at::matmul(x, get(module + ".weight").t());
    if (weights.contains(module + ".bias")) {
      y = y + get(module + ".bias");
    }
    if (weights.contains(module + ".lora_A.weight")) {
      const at::Tensor u = at::matmul(x, get(module + ".lora_A.weight").t());
      y = y + lora_scale * at::matmul(u, get(module + ".lora_B.weight").t());
    }
    return y;
  }

  /// x [n, heads, d], positions 0…n−1.
  [[nodiscard]] at::Tensor rotate(const at::Tensor& x) const {
    const std::int64_t n = x.size(0);
    const std::int64_t d = x.size(2);
    const at::Tensor exponent = at::arange(0, d, 2, at::kDouble) / static_cast<double>(d);
    const at::Tensor frequency = 1.0 / at::pow(model.rope.theta, exponent);
    const at::Tensor angle = at::outer(at::arange(n, at::kDouble), frequency);
    const at::Tensor cosine = at::cat({angle.cos(), angle.cos()}, 1).unsqueeze(1);
    const at::Tensor sine = at::cat({angle.sin(), angle.sin()}, 1).unsqueeze(1);
    const auto halves = x.chunk(2, -1);
    const at::Tensor turned = at::cat({-halves[1], halves[0]}, -1);
    return x * cosine + turned * sine;
  }

  [[nodiscard]] at::Tensor attention(const at::Tensor& x, const std::string& prefix) const {
    const std::int64_t n = x.size(0);
    const std::int64_t d = model.head_dim;
    at::Tensor q = linear(x, prefix + "q_proj").view({n, model.num_heads, d});
    at::Tensor k = linear(x, prefix + "k_proj").view({n, model.num_kv_heads, d});
    const at::Tensor v = linear(x, prefix + "v_proj").view({n, model.num_kv_heads, d});
    if (model.qk_norm) {
      q = norm(q, prefix + "q_norm.weight");
      k = norm(k, prefix + "k_norm.weight");
    }
    q = rotate(q);
    k = rotate(k);
    const at::Tensor mask = at::ones({n, n}, at::kBool).tril().logical_not();
    std::vector<at::Tensor> heads;
    for (std::int64_t head = 0; head < model.num_heads; ++head) {
      const std::int64_t kv = head / (model.num_heads / model.num_kv_heads);
      at::Tensor scores = at::matmul(q.select(1, head), k.select(1, kv).t()) / std::sqrt(double(d));
      scores = scores.masked_fill(mask, -INFINITY);
      heads.push_back(at::matmul(at::softmax(scores, -1), v.select(1, kv)));
    }
    return linear(at::cat(heads, 1), prefix + "o_proj");
  }

  [[nodiscard]] at::Tensor logits(const Document& document) const {
    const at::Tensor ids = at::tensor(document.ids, at::kInt).to(at::kLong);
    at::Tensor x = at::embedding(get("model.embed_tokens.weight"), ids);
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      x = x + attention(norm(x, prefix + "input_layernorm.weight"), prefix + "self_attn.");
      const at::Tensor y = norm(x, prefix + "post_attention_layernorm.weight");
      const at::Tensor gate = linear(y, prefix + "mlp.gate_proj");
      const at::Tensor up = linear(y, prefix + "mlp.up_proj");
      x = x + linear(gate * at::sigmoid(gate) * up, prefix + "mlp.down_proj");
    }
    x = norm(x, "model.norm.weight");
    // A tied head has no weight of its own, unless a saved copy of one end has ended the tie.
    const std::string head =
        weights.contains("lm_head.weight") ? "lm_head.weight" : "model.embed_tokens.weight";
    return at::matmul(x, get(head).t());
  }
};

}  // namespace

ReferenceResult reference_step(const config::ModelConfig& model, const model::Parameters& weights,
                               double lora_scale, const std::vector<Document>& documents,
                               double scale) {
  Weights copies;
  for (std::size_t i = 0; i < weights.registry().size(); ++i) {
    const config::ParamSpec& spec = weights.registry()[i];
    if (spec.tied_to) {
      continue;
    }
    at::Tensor copy = weights.compute(static_cast<std::int64_t>(i)).to(at::kDouble).clone();
    copy.requires_grad_(spec.trainable);
    copies[spec.name] = copy;
  }
  const Formula formula{model, copies, lora_scale};
  ReferenceResult result;
  for (const Document& document : documents) {
    std::vector<std::int64_t> positions;
    std::vector<std::int64_t> targets;
    for (std::size_t i = 1; i < document.labels.size(); ++i) {
      if (document.labels[i] != text::kNoLabel) {
        positions.push_back(static_cast<std::int64_t>(i) - 1);
        targets.push_back(document.labels[i]);
      }
    }
    if (targets.empty()) {
      continue;
    }
    const at::Tensor rows = formula.logits(document).index_select(0, at::tensor(positions));
    const at::Tensor labels = at::tensor(targets);
    const at::Tensor loss = at::cross_entropy_loss(rows, labels, /*weight=*/{}, at::Reduction::Sum);
    at::Tensor(loss * scale).backward();
    result.loss_sum += loss.item<double>();
    result.targets += static_cast<std::int64_t>(targets.size());
    result.correct += rows.argmax(1).eq(labels).sum().item<std::int64_t>();
  }
  for (const config::ParamSpec& spec : weights.registry()) {
    if (spec.trainable && !spec.tied_to) {
      const at::Tensor& weight = copies.at(spec.name);
      result.gradients[spec.name] =
          weight.grad().defined() ? weight.grad() : at::zeros_like(weight);
    }
  }
  return result;
}

}  // namespace longhaul::testing
