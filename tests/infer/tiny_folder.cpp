#include "infer/tiny_folder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "model/loader.h"
#include "model/tiny_models.h"

namespace longhaul::testing {
namespace {

namespace fs = std::filesystem;

struct Values {
  std::string name;
  base::Dtype dtype;
  at::Tensor tensor;
};

void write_values(const fs::path& path, const std::vector<Values>& values) {
  std::vector<base::TensorToWrite> tensors;
  for (const Values& entry : values) {
    tensors.push_back(
        {.name = entry.name,
         .dtype = entry.dtype,
         .shape = entry.tensor.sizes().vec(),
         .bytes = {static_cast<const std::byte*>(entry.tensor.data_ptr()), entry.tensor.nbytes()}});
  }
  base::write_safetensors(path, tensors, {{"format", "pt"}});
}

base::OrderedJson config_json(const config::ModelConfig& model, base::Dtype dtype) {
  base::OrderedJson json;
  const bool llama = model.family == config::ModelFamily::kLlama;
  const bool qwen3 = model.family == config::ModelFamily::kQwen3;
  json["model_type"] = llama ? "llama" : qwen3 ? "qwen3" : "qwen2";
  json["architectures"] = {llama   ? "LlamaForCausalLM"
                           : qwen3 ? "Qwen3ForCausalLM"
                                   : "Qwen2ForCausalLM"};
  json["hidden_size"] = model.hidden_size;
  json["intermediate_size"] = model.intermediate_size;
  json["num_hidden_layers"] = model.num_layers;
  json["num_attention_heads"] = model.num_heads;
  json["num_key_value_heads"] = model.num_kv_heads;
  json["head_dim"] = model.head_dim;
  json["vocab_size"] = model.vocab_size;
  json["max_position_embeddings"] = model.max_position_embeddings;
  json["rms_norm_eps"] = model.rms_norm_eps;
  json["rope_theta"] = model.rope.theta;
  json["tie_word_embeddings"] = model.tie_word_embeddings;
  json["torch_dtype"] = std::string(base::dtype_name(dtype));
  json["eos_token_id"] = 49;
  return json;
}

}  // namespace

std::string tiny_tokenizer_json() {
  base::OrderedJson vocabulary = base::OrderedJson::object();
  // Letters a–z, A–P, space, newline, digits: 48 symbols that byte-level text writes as themselves.
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP.?01";
  std::int32_t id = 0;
  for (const char letter : letters) {
    vocabulary[std::string(1, letter)] = id++;
  }
  vocabulary["\u0120"] = id++;
  vocabulary["\u010A"] = id++;
  base::OrderedJson added = base::OrderedJson::array();
  for (const char* const content : {"<|im_start|>", "<|im_end|>"}) {
    added.push_back({{"id", id++},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const base::OrderedJson byte_level = {{"type", "ByteLevel"},
                                        {"add_prefix_space", false},
                                        {"trim_offsets", true},
                                        {"use_regex", true}};
  base::OrderedJson json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = added;
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = byte_level;
  json["post_processor"] = nullptr;
  json["decoder"] = byte_level;
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"vocab", vocabulary},
                   {"merges", base::OrderedJson::array()}};
  return json.dump();
}

config::LoraSpec tiny_lora(const config::ModelConfig& model,
                           const std::vector<std::string>& modules_to_save) {
  config::LoraSpec lora = *tiny_tuning(model, Tuning::kLora).lora;
  lora.modules_to_save = modules_to_save;
  return lora;
}

model::Parameters tiny_parameters(const config::ModelConfig& model, const config::LoraSpec& lora) {
  model::Parameters parameters(config::build_registry(model, {.lora = lora}), at::kFloat);
  randomise(parameters, 11);
  return parameters;
}

void write_model_folder(const fs::path& folder, const config::ModelConfig& model,
                        const model::Parameters& parameters, base::Dtype dtype,
                        std::int64_t shards) {
  base::make_folder(folder);
  base::write_file_atomically(folder / "config.json", config_json(model, dtype).dump(2));
  base::write_file_atomically(folder / "tokenizer.json", tiny_tokenizer_json());
  const at::ScalarType type = dtype == base::Dtype::kFloat32    ? at::kFloat
                              : dtype == base::Dtype::kBFloat16 ? at::kBFloat16
                                                                : at::kHalf;
  std::vector<std::vector<Values>> files(static_cast<std::size_t>(shards));
  base::OrderedJson weight_map;
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    const bool adapter =
        spec.kind == config::ParamKind::kLoraA || spec.kind == config::ParamKind::kLoraB;
    if (adapter || (model.tie_word_embeddings && spec.name == "lm_head.weight")) {
      continue;
    }
    const std::size_t shard = i % files.size();
    files[shard].push_back(
        {spec.name, dtype, parameters.compute(static_cast<std::int64_t>(i)).to(type).contiguous()});
    weight_map[spec.name] =
        fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, files.size());
  }
  for (std::size_t shard = 0; shard < files.size(); ++shard) {
    write_values(folder / (files.size() == 1 ? "model.safetensors"
                                             : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                           shard + 1, files.size())),
                 files[shard]);
  }
  if (files.size() > 1) {
    const base::OrderedJson index = {{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}};
    base::write_file_atomically(folder / "model.safetensors.index.json", index.dump());
  }
}

void write_adapter_folder(const fs::path& folder, const std::string& base_model,
                          const config::LoraSpec& lora, const model::Parameters& parameters) {
  base::make_folder(folder);
  base::OrderedJson json;
  json["base_model_name_or_path"] = base_model;
  json["peft_type"] = "LORA";
  json["task_type"] = "CAUSAL_LM";
  json["r"] = lora.rank;
  json["lora_alpha"] = lora.alpha;
  json["lora_dropout"] = 0.1;
  json["bias"] = "none";
  json["target_modules"] = lora.target_modules;
  json["modules_to_save"] = lora.modules_to_save;
  base::write_file_atomically(folder / "adapter_config.json", json.dump(2));
  std::vector<Values> values;
  for (std::size_t i = 0; i < parameters.registry().size(); ++i) {
    const config::ParamSpec& spec = parameters.registry()[i];
    if (spec.in_adapter) {
      values.push_back({model::adapter_tensor_name(spec), base::Dtype::kFloat32,
                        parameters.compute(static_cast<std::int64_t>(i)).contiguous()});
    }
  }
  write_values(folder / "adapter_model.safetensors", values);
}

}  // namespace longhaul::testing
