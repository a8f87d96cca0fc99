// Every key of a config.json falls into one of four groups: read (model_config.cpp, rope.cpp),
// harmless (does not touch the mathematics of training), refused when it has a value other than its
// neutral one, and unknown (noted: transformers' own classes of these families do not read it
// either).
#include "config/model_rules.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/contains.h"

namespace longhaul::config {
namespace {

using base::contains;

/// A key (or a part of a key's name) with what it means to a reader of the message.
struct Refusal {
  std::string_view name;
  std::string_view meaning;
};

/// Refused by whole name unless null, false, 0, "" or empty.
constexpr std::array<Refusal, 35> kRefusedKeys = {{
    {"quantization_config", "quantised weights"},
    {"compression_config", "quantised weights"},
    {"n_routed_experts", "mixture of experts"},
    {"n_shared_experts", "mixture of experts"},
    {"router_aux_loss_coef", "mixture of experts"},
    {"decoder_sparse_step", "mixture of experts"},
    {"is_encoder_decoder", "encoder-decoder models"},
    {"add_cross_attention", "cross attention"},
    {"cross_attention_hidden_size", "cross attention"},
    {"tie_encoder_decoder", "encoder-decoder models"},
    {"pruned_heads", "pruned heads"},
    {"attention_dropout", "dropout inside the model"},
    {"hidden_dropout", "dropout inside the model"},
    {"hidden_dropout_prob", "dropout inside the model"},
    {"attention_probs_dropout_prob", "dropout inside the model"},
    {"attn_pdrop", "dropout inside the model"},
    {"embd_pdrop", "dropout inside the model"},
    {"resid_pdrop", "dropout inside the model"},
    {"num_nextn_predict_layers", "multi-token prediction"},
    {"query_pre_attn_scalar", "another attention scale"},
    {"clip_qkv", "clipped q, k, v"},
    {"alibi", "ALiBi positions"},
    {"use_alibi", "ALiBi positions"},
    {"parallel_attn", "parallel attention and MLP"},
    {"use_parallel_residual", "parallel attention and MLP"},
    {"use_mrope", "multi-axis rotary embedding"},
    {"rope_interleaved", "interleaved rotary embedding"},
    {"use_qk_norm", "norms of q and k"},
    {"qk_norm", "norms of q and k"},
    {"qk_layernorm", "norms of q and k"},
    {"full_attn_interval", "linear attention layers"},
    {"full_attention_interval", "linear attention layers"},
    {"attention_chunk_size", "chunked attention"},
    {"use_bidirectional_attention", "attention to later tokens"},
    {"kv_lora_rank", "latent attention"},
}};

/// Refused where a part of the name says what it is, unless neutral.
constexpr std::array<Refusal, 19> kRefusedParts = {{
    {"expert", "mixture of experts"},
    {"moe", "mixture of experts"},
    {"softcap", "logit soft caps"},
    {"soft_cap", "logit soft caps"},
    {"sliding_window_", "sliding windows"},
    {"quantiz", "quantised weights"},
    {"vision", "vision inputs"},
    {"image", "vision inputs"},
    {"video", "vision inputs"},
    {"audio", "audio inputs"},
    {"mamba", "state-space layers"},
    {"ssm_", "state-space layers"},
    {"linear_attn", "linear attention layers"},
    {"linear_attention", "linear attention layers"},
    {"linear_num_", "linear attention layers"},
    {"no_rope", "layers without positions"},
    {"nope_layer", "layers without positions"},
    {"attention_sink", "attention sinks"},
    {"lora_rank", "latent attention"},
}};

/// Factors: refused unless 1.
constexpr std::array<std::string_view, 14> kFactors = {
    "logit_scale",          "logits_scaling",   "residual_multiplier", "embedding_multiplier",
    "attention_multiplier", "scale_emb",        "scale_depth",         "embedding_scale",
    "lm_head_multiplier",   "query_multiplier", "key_multiplier",      "mlp_multipliers",
    "rotary_pct",           "rope_ratio"};

/// Read elsewhere.
constexpr std::array<std::string_view, 35> kReadKeys = {"architectures",
                                                        "attention_bias",
                                                        "auto_map",
                                                        "bos_token_id",
                                                        "dtype",
                                                        "eos_token_id",
                                                        "head_dim",
                                                        "hidden_act",
                                                        "hidden_activation",
                                                        "hidden_size",
                                                        "intermediate_size",
                                                        "is_causal",
                                                        "layer_types",
                                                        "max_position_embeddings",
                                                        "max_window_layers",
                                                        "mlp_bias",
                                                        "model_type",
                                                        "num_attention_heads",
                                                        "num_hidden_layers",
                                                        "num_key_value_heads",
                                                        "original_max_position_embeddings",
                                                        "pad_token_id",
                                                        "partial_rotary_factor",
                                                        "pretraining_tp",
                                                        "qkv_bias",
                                                        "rms_norm_eps",
                                                        "rope_parameters",
                                                        "rope_scaling",
                                                        "rope_theta",
                                                        "sliding_window",
                                                        "tie_word_embeddings",
                                                        "torch_dtype",
                                                        "use_bias",
                                                        "use_sliding_window",
                                                        "vocab_size"};

/// Bookkeeping and generation settings that transformers writes; none changes training.
constexpr std::array<std::string_view, 66> kHarmlessKeys = {"_attn_implementation",
                                                            "_attn_implementation_autoset",
                                                            "_commit_hash",
                                                            "_from_model_config",
                                                            "_name_or_path",
                                                            "attn_implementation",
                                                            "bad_words_ids",
                                                            "begin_suppress_tokens",
                                                            "chunk_size_feed_forward",
                                                            "decoder_start_token_id",
                                                            "diversity_penalty",
                                                            "do_sample",
                                                            "early_stopping",
                                                            "encoder_no_repeat_ngram_size",
                                                            "exponential_decay_length_penalty",
                                                            "finetuning_task",
                                                            "forced_bos_token_id",
                                                            "forced_eos_token_id",
                                                            "gradient_checkpointing",
                                                            "id2label",
                                                            "initializer_range",
                                                            "is_decoder",
                                                            "is_llama_config",
                                                            "keys_to_ignore_at_inference",
                                                            "label2id",
                                                            "length_penalty",
                                                            "max_length",
                                                            "min_length",
                                                            "no_repeat_ngram_size",
                                                            "num_beam_groups",
                                                            "num_beams",
                                                            "num_labels",
                                                            "num_return_sequences",
                                                            "output_attentions",
                                                            "output_hidden_states",
                                                            "output_scores",
                                                            "prefix",
                                                            "problem_type",
                                                            "remove_invalid_values",
                                                            "repetition_penalty",
                                                            "return_dict",
                                                            "return_dict_in_generate",
                                                            "sep_token_id",
                                                            "suppress_tokens",
                                                            "task_specific_params",
                                                            "temperature",
                                                            "tf_legacy_loss",
                                                            "tokenizer_class",
                                                            "top_k",
                                                            "top_p",
                                                            "torchscript",
                                                            "transformers.js_config",
                                                            "transformers_version",
                                                            "transformers_weights",
                                                            "typical_p",
                                                            "unk_token_id",
                                                            "unsloth_fixed",
                                                            "unsloth_version",
                                                            "use_bfloat16",
                                                            "use_cache",
                                                            "use_flash_attn",
                                                            "use_return_dict",
                                                            "kv_cache_dtype",
                                                            "max_new_tokens",
                                                            "mm_tokens_per_image",
                                                            "trl_version"};

bool is_neutral(const base::Json& value) {
  if (value.is_null() || value == false) {
    return true;
  }
  if (value.is_string()) {
    return value.get_ref<const std::string&>().empty();
  }
  if (value.is_number()) {
    return value.get<double>() == 0.0;
  }
  return (value.is_array() || value.is_object()) && value.empty();
}

/// What the key stands for if it is one that is refused; empty otherwise.
std::string_view refused_meaning(std::string_view key) {
  for (const Refusal& refusal : kRefusedKeys) {
    if (key == refusal.name) {
      return refusal.meaning;
    }
  }
  if (contains(kReadKeys, key) || contains(kHarmlessKeys, key)) {
    return {};
  }
  for (const Refusal& refusal : kRefusedParts) {
    if (key.find(refusal.name) != std::string_view::npos) {
      return refusal.meaning;
    }
  }
  if (key.find("dropout") != std::string_view::npos) {
    return "dropout inside the model";
  }
  return {};
}

/// A nested model (`text_config`, `vision_config` …) means another architecture around this one.
bool is_sub_config(std::string_view key, const base::Json& value) {
  return key.ends_with("_config") && value.is_object() && !contains(kHarmlessKeys, key);
}

}  // namespace

void refuse_unbuilt_features(const JsonFields& fields) {
  for (const auto& [key, value] : fields.object().items()) {
    if (contains(kFactors, key)) {
      if (!value.is_null() && !(value.is_number() && value.get<double>() == 1.0)) {
        fields.fault(key, "scaled activations are not available", "1");
      }
      continue;
    }
    if (is_neutral(value)) {
      continue;
    }
    const std::string_view meaning = refused_meaning(key);
    if (!meaning.empty()) {
      fields.fault(key, std::string(meaning) + " not available");
    } else if (is_sub_config(key, value)) {
      fields.fault(key, "models with nested parts are not available");
    }
  }
}

std::vector<std::string> unknown_keys(const JsonFields& fields) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : fields.object().items()) {
    const bool known = contains(kReadKeys, key) || contains(kHarmlessKeys, key) ||
                       contains(kFactors, key) || !refused_meaning(key).empty();
    if (!known && !is_neutral(value)) {
      unknown.push_back(fields.place(key));
    }
  }
  return unknown;
}

}  // namespace longhaul::config
