// Text → token ids as the Hugging Face `tokenizers` do it for byte-level BPE (Llama 3, Qwen,
// SmolLM2, DeepSeek).
//   text ─added tokens→ parts ─normalizer→ ─added tokens (normalized)→ ─pre-tokenizer→ words ─BPE→
//   ids
// Any component of tokenizer.json that we do not know is refused by name. No post-processor:
// nothing is added.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::text {

/// Immutable and cheap to copy; every method may be called from several threads at once.
class Tokenizer {
 public:
  /// Reads `tokenizer.json` of a model folder; UserError naming the file and the component it
  /// cannot take.
  static Tokenizer load(const std::filesystem::path& model_folder);
  /// The same from the text of a tokenizer.json; `where` names it in messages.
  static Tokenizer parse(std::string_view json_text, const std::string& where);

  /// Ids of a text. Special-token text inside becomes its token; nothing is added. UserError for
  /// ill-formed UTF-8.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// Appends the ids of a text to `out`.
  void encode_to(std::string_view text, std::vector<std::int32_t>& out) const;
  /// Text of ids; ill-formed UTF-8 becomes U+FFFD, ids without a token are left out.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  /// Id of one token by its text in tokenizer.json (`<|im_end|>`, `Ġthe`).
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view token) const;
  /// Bytes that an id stands for; empty for an id without a token.
  [[nodiscard]] std::string_view bytes_of(std::int32_t id) const;
  /// True for ids of special tokens (left out by `skip_special`).
  [[nodiscard]] bool is_special(std::int32_t id) const;
  /// Largest id + 1: the embedding must have at least as many rows.
  [[nodiscard]] std::int64_t num_ids() const;
  /// Checksum of tokenizer.json, for cache keys.
  [[nodiscard]] const std::string& identity() const;

 private:
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

}  // namespace longhaul::text
