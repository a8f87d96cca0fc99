// config.json → ModelConfig. Defaults are those of transformers' LlamaConfig, MistralConfig,
// Qwen2Config and Qwen3Config; every problem of the file is listed at once.
#include "config/model_config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/path_state.h"
#include "config/json_fields.h"
#include "config/model_rules.h"
#include "config/rope.h"

namespace longhaul::config {
namespace {

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();

/// What differs between the families when config.json is silent.
struct FamilyDefaults {
  ModelFamily family;
  std::string_view model_type;
  std::string_view architecture;
  std::int64_t max_position_embeddings;
  std::int64_t num_kv_heads;  // 0: as many as query heads
  std::int64_t bos_token_id;  // −1: none
  std::int64_t eos_token_id;
};

constexpr std::array<FamilyDefaults, 4> kFamilies = {{
    {ModelFamily::kLlama, "llama", "LlamaForCausalLM", 2048, 0, 1, 2},
    {ModelFamily::kMistral, "mistral", "MistralForCausalLM", 131072, 8, 1, 2},
    {ModelFamily::kQwen2, "qwen2", "Qwen2ForCausalLM", 32768, 32, -1, -1},
    {ModelFamily::kQwen3, "qwen3", "Qwen3ForCausalLM", 32768, 32, -1, -1},
}};

constexpr std::string_view kKnownFamilies = "llama, mistral, qwen2 or qwen3";
constexpr std::string_view kKnownArchitectures =
    "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM";

const FamilyDefaults* family_of(const JsonFields& fields) {
  const FamilyDefaults* by_type = nullptr;
  const FamilyDefaults* by_architecture = nullptr;
  if (const auto type = fields.text("model_type")) {
    for (const FamilyDefaults& family : kFamilies) {
      by_type = *type == family.model_type ? &family : by_type;
    }
    if (by_type == nullptr) {
      fields.fault("model_type", "model family is not available", std::string(kKnownFamilies));
    }
  }
  if (fields.has("architectures")) {
    const base::Json& names = fields.at("architectures");
    const bool one_name = names.is_array() && names.size() == 1 && names[0].is_string();
    for (const FamilyDefaults& family : kFamilies) {
      if (one_name && names[0].get<std::string>() == family.architecture) {
        by_architecture = &family;
      }
    }
    if (by_architecture == nullptr) {
      fields.fault("architectures", "architecture is not available",
                   std::string(kKnownArchitectures));
    } else if (by_type != nullptr && by_type != by_architecture) {
      fields.fault("architectures", "does not fit model_type",
                   fmt::format("[\"{}\"]", by_type->architecture));
    }
  }
  if (!fields.has("model_type") && !fields.has("architectures")) {
    fields.fault("model_type", "missing, and so is architectures", std::string(kKnownFamilies));
  }
  return by_type != nullptr ? by_type : by_architecture;
}

void read_sizes(const JsonFields& fields, const FamilyDefaults& family, ModelConfig& model) {
  model.hidden_size = fields.required_integer("hidden_size", 1, 1 << 20);
  model.num_layers = fields.required_integer("num_hidden_layers", 1, 4096);
  model.num_heads = fields.required_integer("num_attention_heads", 1, 65536);
  model.intermediate_size = fields.required_integer("intermediate_size", 1, 1 << 24);
  model.vocab_size = fields.required_integer("vocab_size", 1, 1 << 30);
  model.max_position_embeddings = fields.integer("max_position_embeddings", 1, kInt32Max)
                                      .value_or(family.max_position_embeddings);
  model.rms_norm_eps = fields.number("rms_norm_eps", 1e-30, 1.0).value_or(1e-6);
  // Absent means the family's default, null means as many as query heads.
  const bool defaulted = !fields.is_present("num_key_value_heads") && family.num_kv_heads > 0;
  model.num_kv_heads =
      defaulted ? family.num_kv_heads
                : fields.integer("num_key_value_heads", 1, 65536).value_or(model.num_heads);
  if (model.num_heads > 0 && model.num_heads % model.num_kv_heads != 0) {
    fields.fault(
        "num_key_value_heads",
        defaulted ? "missing, and the default does not fit" : "does not divide num_attention_heads",
        fmt::format("a divisor of {}", model.num_heads));
  }
}

void read_head_dim(const JsonFields& fields, ModelConfig& model) {
  const bool given = fields.has("head_dim");
  if (given) {
    model.head_dim = fields.integer("head_dim", 2, 1 << 16).value_or(0);
  } else if (model.family == ModelFamily::kQwen3) {
    model.head_dim = 128;
  } else if (model.num_heads > 0 && model.hidden_size > 0) {
    if (model.hidden_size % model.num_heads != 0) {
      fields.fault("hidden_size", "not a multiple of num_attention_heads, and head_dim is missing",
                   fmt::format("a multiple of {}", model.num_heads));
      return;
    }
    model.head_dim = model.hidden_size / model.num_heads;
  }
  if (model.head_dim % 2 != 0) {
    fields.fault("head_dim",
                 fmt::format("odd width {} of a head cannot be rotated in pairs", model.head_dim),
                 "an even number");
  }
}

/// Biases: fixed by the family, except where its configuration has a switch.
void read_biases(const JsonFields& fields, ModelConfig& model) {
  const bool is_llama = model.family == ModelFamily::kLlama;
  const bool is_qwen2 = model.family == ModelFamily::kQwen2;
  const std::optional<bool> attention = fields.boolean("attention_bias");
  const std::optional<bool> mlp = fields.boolean("mlp_bias");
  model.qkv_bias = is_qwen2;
  if (is_llama || model.family == ModelFamily::kQwen3) {
    model.qkv_bias = attention.value_or(false);
    model.o_bias = model.qkv_bias;
  } else if (attention && *attention != is_qwen2) {
    fields.fault("attention_bias",
                 fmt::format("{} models always have it {}", model.model_type, is_qwen2));
  }
  model.mlp_bias = is_llama && mlp.value_or(false);
  if (!is_llama && mlp.value_or(false)) {
    fields.fault("mlp_bias", fmt::format("{} models have no bias there", model.model_type));
  }
  for (const char* key : {"qkv_bias", "use_bias"}) {
    const std::optional<bool> value = fields.boolean(key);
    const bool expected = std::string_view(key) == "qkv_bias" && model.qkv_bias;
    if (value && *value != expected) {
      fields.fault(key, fmt::format("{} models always have it {}", model.model_type, expected));
    }
  }
}

/// A window that hides tokens of a long row changes the result; an unused one does not.
void refuse_sliding_window(const JsonFields& fields, const ModelConfig& model) {
  if (model.family == ModelFamily::kLlama || model.family == ModelFamily::kMistral) {
    const bool mistral_default =
        model.family == ModelFamily::kMistral && !fields.is_present("sliding_window");
    if (fields.has("sliding_window") || mistral_default) {
      fields.fault("sliding_window",
                   mistral_default ? "missing, which means a window of 4096 tokens; sliding "
                                     "window attention is not available"
                                   : "sliding window attention is not available",
                   "null");
    }
    return;
  }
  const bool wanted = fields.boolean("use_sliding_window").value_or(false);
  const bool has_window = !fields.is_present("sliding_window") || fields.has("sliding_window");
  const std::int64_t first = fields.integer("max_window_layers", 0, kInt32Max).value_or(28);
  if (wanted && has_window && first < model.num_layers && !fields.has("layer_types")) {
    fields.fault("use_sliding_window", "sliding window attention is not available", "false");
  }
}

void refuse_layer_types(const JsonFields& fields, const ModelConfig& model) {
  if (!fields.has("layer_types")) {
    return;
  }
  const base::Json& types = fields.at("layer_types");
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != model.num_layers) {
    fields.fault("layer_types", "impossible value",
                 fmt::format("a list of {} layer kinds", model.num_layers));
    return;
  }
  for (const base::Json& type : types) {
    if (type != "full_attention") {
      fields.fault("layer_types", fmt::format("layer kind {} is not available", short_dump(type)),
                   "full_attention in every layer");
      return;
    }
  }
}

void refuse_other_mathematics(const JsonFields& fields, const ModelConfig& model) {
  refuse_unbuilt_features(fields);
  refuse_sliding_window(fields, model);
  refuse_layer_types(fields, model);
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const auto activation = fields.text(key);
    if (activation && *activation != "silu" && *activation != "swish") {
      fields.fault(key, "activation is not available", "silu");
    }
  }
  const auto slices = fields.integer("pretraining_tp", 1, kInt32Max);
  if (slices && *slices != 1) {
    fields.fault("pretraining_tp", "sliced matrix products are not available", "1");
  }
  if (const auto causal = fields.boolean("is_causal"); causal && !*causal) {
    fields.fault("is_causal", "attention to later tokens is not available", "true");
  }
  const base::Json& own_code = fields.at("auto_map");
  if (own_code.is_object() && own_code.contains("AutoModelForCausalLM")) {
    fields.fault("auto_map", "models with code of their own are not available");
  }
}

void read_dtype(const JsonFields& fields, ModelConfig& model) {
  const std::string key = fields.has("dtype") ? "dtype" : "torch_dtype";
  auto name = fields.text(key);
  if (!name) {
    return;
  }
  if (name->starts_with("torch.")) {
    name->erase(0, std::string_view("torch.").size());
  }
  const auto dtype = base::dtype_from_name(*name);
  if (dtype == base::Dtype::kFloat32 || dtype == base::Dtype::kFloat16 ||
      dtype == base::Dtype::kBFloat16) {
    model.dtype = *dtype;
  } else {
    fields.fault(key, "number type is not available", "float32, bfloat16 or float16");
  }
}

/// A token id, or several. Negative ids are how some files write "none".
std::vector<std::int64_t> read_ids(const JsonFields& fields, const std::string& key) {
  const base::Json& value = fields.at(key);
  const base::Json list = value.is_array() ? value : base::Json::array({value});
  std::vector<std::int64_t> ids;
  for (const base::Json& id : list) {
    // Compared as double, so that values beyond the signed range do not wrap around.
    const bool fits =
        id.is_number_integer() && std::abs(id.get<double>()) <= static_cast<double>(kInt32Max);
    if (!fits) {
      fields.fault(key, "impossible value", "a token id or a list of them");
      return {};
    }
    if (id.get<std::int64_t>() >= 0) {
      ids.push_back(id.get<std::int64_t>());
    }
  }
  return ids;
}

std::optional<std::int64_t> read_id(const JsonFields& fields, const std::string& key,
                                    std::int64_t absent) {
  if (!fields.is_present(key)) {
    return absent < 0 ? std::nullopt : std::optional(absent);
  }
  const auto id = fields.integer(key, -kInt32Max, kInt32Max);
  return id && *id >= 0 ? id : std::nullopt;
}

void read_special_ids(const JsonFields& fields, const FamilyDefaults& family, ModelConfig& model) {
  model.bos_token_id = read_id(fields, "bos_token_id", family.bos_token_id);
  model.pad_token_id = read_id(fields, "pad_token_id", -1);
  if (fields.has("eos_token_id")) {
    model.eos_token_ids = read_ids(fields, "eos_token_id");
  } else if (!fields.is_present("eos_token_id") && family.eos_token_id >= 0) {
    model.eos_token_ids = {family.eos_token_id};
  }
}

/// Reads `text` as one JSON object and hands its fields to `read`; throws what was found wrong.
template <typename Read>
void with_fields(std::string_view text, const std::string& where, const Read& read) {
  const base::Json object = base::parse_json(text, where);
  if (!object.is_object()) {
    throw base::UserError({.where = where, .what = "not a JSON object", .got = short_dump(object)});
  }
  const auto lines = key_lines(text);
  std::vector<base::Problem> problems;
  read(JsonFields(object, where, lines, problems));
  if (!problems.empty()) {
    throw base::UserError(std::move(problems));
  }
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, const std::string& where) {
  ModelConfig model;
  with_fields(text, where, [&](const JsonFields& fields) {
    const FamilyDefaults* found = family_of(fields);
    // With an unknown family the other fields are still read, so that all their faults are listed.
    const FamilyDefaults& family = found != nullptr ? *found : kFamilies[0];
    model.family = family.family;
    model.model_type = family.model_type;
    read_sizes(fields, family, model);
    read_head_dim(fields, model);
    model.qk_norm = model.family == ModelFamily::kQwen3;
    model.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
    read_dtype(fields, model);
    read_special_ids(fields, family, model);
    model.rope = read_rope(fields, model.max_position_embeddings);
    if (found != nullptr) {
      read_biases(fields, model);
      refuse_other_mathematics(fields, model);
    }
    model.unknown_keys = unknown_keys(fields);
  });
  return model;
}

ModelConfig read_model_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  ModelConfig model = parse_model_config(base::read_file(file), file.string());
  const std::filesystem::path generation = folder / "generation_config.json";
  if (base::path_exists(generation, "--model")) {
    with_fields(base::read_file(generation), generation.string(), [&](const JsonFields& fields) {
      if (fields.has("eos_token_id")) {
        model.eos_token_ids = read_ids(fields, "eos_token_id");
      }
    });
  }
  return model;
}

}  // namespace longhaul::config
