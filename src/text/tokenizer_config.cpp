#include "text/tokenizer_config.h"

#include <fmt/format.h>

#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/bpe_model.h"
#include "text/json_fields.h"

namespace longhaul::text {
namespace {

/// The JSON object in a file of the folder, or nothing when there is no such file.
std::optional<base::Json> read_object(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return std::nullopt;
  }
  base::Json document = base::parse_json(base::read_file(path), path.string());
  const JsonFields check(document, path.string());
  return document;
}

void add_special_tokens(const base::Json& document, const std::string& where,
                        TokenizerConfig& config) {
  for (const char* const key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                                "cls_token", "mask_token"}) {
    const auto at = document.find(key);
    if (at == document.end() || at->is_null()) {
      continue;
    }
    // Written as a text or as an object with the token's settings.
    const bool is_object = at->is_object() && at->contains("content");
    const base::Json& text = is_object ? at->at("content") : *at;
    if (!text.is_string()) {
      throw base::UserError(base::Problem{.where = where,
                                          .what = fmt::format("'{}' has a wrong value", key),
                                          .got = shown(*at),
                                          .expected = "a string"});
    }
    config.special_tokens.emplace(key, text.get<std::string>());
  }
}

/// `chat_template`: a text, or a list of named ones, of which "default" is the one for chats.
std::optional<std::string> chat_template_in(const base::Json& document, const std::string& where) {
  const auto at = document.find("chat_template");
  if (at == document.end() || at->is_null()) {
    return std::nullopt;
  }
  if (at->is_string()) {
    return at->get<std::string>();
  }
  if (at->is_array()) {
    for (const base::Json& row : *at) {
      const JsonFields fields(row, where + ": chat_template");
      if (fields.string("name") == "default") {
        return fields.string("template");
      }
    }
    return std::nullopt;
  }
  throw base::UserError(base::Problem{.where = where,
                                      .what = "'chat_template' has a wrong value",
                                      .got = shown(*at),
                                      .expected = "a string or a list of named templates"});
}

std::optional<std::int32_t> first_eos_id(const base::Json& document) {
  const auto at = document.find("eos_token_id");
  if (at == document.end()) {
    return std::nullopt;
  }
  if (at->is_array()) {
    return at->empty() ? std::nullopt : as_id(at->front(), kMaxTokenId);
  }
  return as_id(*at, kMaxTokenId);
}

}  // namespace

TokenizerConfig load_tokenizer_config(const std::filesystem::path& model_folder) {
  TokenizerConfig config;
  for (const char* const name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::filesystem::path path = model_folder / name;
    const auto document = read_object(path);
    if (!document) {
      continue;
    }
    add_special_tokens(*document, path.string(), config);
    if (!config.chat_template) {
      config.chat_template = chat_template_in(*document, path.string());
      config.chat_template_where = path.string() + ": chat_template";
    }
  }
  const std::filesystem::path own_file = model_folder / "chat_template.jinja";
  std::error_code ignored;
  if (std::filesystem::exists(own_file, ignored)) {
    config.chat_template = base::read_file(own_file);
    config.chat_template_where = own_file.string();
  }
  return config;
}

std::optional<std::int32_t> find_eos_id(const std::filesystem::path& model_folder,
                                        const Tokenizer& tokenizer) {
  const TokenizerConfig config = load_tokenizer_config(model_folder);
  if (const auto at = config.special_tokens.find("eos_token"); at != config.special_tokens.end()) {
    if (const auto id = tokenizer.id_of(at->second)) {
      return id;
    }
  }
  for (const char* const name : {"generation_config.json", "config.json"}) {
    if (const auto document = read_object(model_folder / name)) {
      if (const auto id = first_eos_id(*document)) {
        return id;
      }
    }
  }
  return std::nullopt;
}

}  // namespace longhaul::text
