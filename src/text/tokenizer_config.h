// What a model folder says beside its tokenizer.json: special-token texts and its own chat
// template.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "text/tokenizer.h"

namespace longhaul::text {

struct TokenizerConfig {
  /// `bos_token` → `<s>` and so on, as chat templates see them.
  std::map<std::string, std::string> special_tokens;
  /// Source of the chat template and the file it stands in; nothing when the model has none.
  std::optional<std::string> chat_template;
  std::string chat_template_where;
};

/// Reads chat_template.jinja (it wins), tokenizer_config.json and special_tokens_map.json, each
/// where it exists. UserError naming the file when one is malformed.
TokenizerConfig load_tokenizer_config(const std::filesystem::path& model_folder);

/// Id of the end-of-text token: `eos_token`, else the (first) eos_token_id of
/// generation_config.json or config.json.
std::optional<std::int32_t> find_eos_id(const std::filesystem::path& model_folder,
                                        const Tokenizer& tokenizer);

}  // namespace longhaul::text
