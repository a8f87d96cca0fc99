// A conversation that ends with a question → the ids that ask the model for its answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace longhaul::infer {

class PromptEncoder {
 public:
  /// `chat_template` null: the texts follow each other as they are. `system` is for conversations
  /// without one.
  PromptEncoder(text::Tokenizer tokenizer, const text::ChatTemplate* chat_template,
                std::optional<std::string> system);

  /// The conversation with the system text that it is asked with.
  [[nodiscard]] text::Conversation complete(text::Conversation conversation) const;
  [[nodiscard]] std::vector<std::int32_t> encode(const text::Conversation& conversation) const;
  /// Texts that end an answer.
  [[nodiscard]] const std::vector<std::string>& stop_words() const;
  [[nodiscard]] const text::Tokenizer& tokenizer() const { return tokenizer_; }
  [[nodiscard]] const std::optional<std::string>& system() const { return system_; }
  void set_system(std::optional<std::string> system) { system_ = std::move(system); }

 private:
  text::Tokenizer tokenizer_;
  const text::ChatTemplate* chat_template_;
  std::optional<std::string> system_;
};

}  // namespace longhaul::infer
