// Conversation or plain text → token ids with targets: template, tokenizer and loss rule put
// together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "text/chat_template.h"
#include "text/conversation.h"
#include "text/tokenized_sample.h"
#include "text/tokenizer.h"

namespace longhaul::text {

struct EncodeOptions {
  config::LossScale loss_scale = config::LossScale::kDefault;
  std::optional<std::string> system{};   // for rows without one (--system)
  std::optional<std::int32_t> eos_id{};  // ends a text that has no template
  std::int64_t max_length = 0;           // ≤ 0: no limit
  config::TruncationStrategy truncation = config::TruncationStrategy::kDelete;
};

/// Immutable; every method may be called from several threads at once.
class SampleEncoder {
 public:
  /// `chat_template` null: no template, texts are joined and end with eos (UserError when there is
  /// no eos).
  SampleEncoder(Tokenizer tokenizer, const ChatTemplate* chat_template, EncodeOptions options);

  /// The whole sample, whatever its length.
  [[nodiscard]] TokenizedSample encode(const Conversation& conversation) const;
  /// Text and eos, every token a target but the first.
  [[nodiscard]] TokenizedSample encode_plain(std::string_view text) const;
  /// encode() and then the length policy of the options: none when too long and `delete`.
  [[nodiscard]] std::vector<TokenizedSample> encode_rows(const Conversation& conversation) const;
  [[nodiscard]] std::vector<TokenizedSample> encode_plain_rows(std::string_view text) const;

  /// Changes whenever encode_rows() could give another result for the same input: for cache keys.
  [[nodiscard]] std::string identity() const;
  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }
  [[nodiscard]] const EncodeOptions& options() const { return options_; }

 private:
  [[nodiscard]] std::vector<Piece> pieces_of(const Conversation& conversation) const;

  Tokenizer tokenizer_;
  const ChatTemplate* chat_template_;
  EncodeOptions options_;
};

}  // namespace longhaul::text
