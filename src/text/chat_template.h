// Built-in chat templates: a conversation → the text a model family was trained on, cut where the
// loss changes.
//   prefix [system_open SYSTEM system_close] { user_open QUERY user_close assistant_open ANSWER
//   assistant_close }
// Every family is one row of the table in chat_template.cpp. Message text is never trimmed or
// changed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "text/conversation.h"

namespace longhaul::text {

/// A stretch of rendered text with one loss weight; pieces are tokenised one by one.
struct Piece {
  std::string text;
  bool loss = false;
};

/// One family, as data.
struct TemplateRow {
  std::string name{};
  std::string prefix{};       // before everything
  std::string system_open{};  // around the system text
  std::string system_close{};
  std::string user_open{};
  std::string user_close{};
  std::string assistant_open{};                 // also the generation prompt
  std::string assistant_close{};                // the suffix of an answer; trained with it
  std::optional<std::string> default_system{};  // when neither the row nor the user gives one
  std::string empty_think{};              // put before answers without a think block, never trained
  std::vector<std::string> stop_words{};  // texts that end a generated answer
};

class ChatTemplate {
 public:
  explicit ChatTemplate(TemplateRow row);

  [[nodiscard]] const std::string& name() const { return row_.name; }
  /// Checksum of everything that changes the rendered text, for cache keys.
  [[nodiscard]] const std::string& identity() const { return identity_; }
  [[nodiscard]] const std::optional<std::string>& default_system() const {
    return row_.default_system;
  }
  [[nodiscard]] const std::vector<std::string>& stop_words() const { return row_.stop_words; }

  /// Text for training; neighbouring pieces differ in `loss`. `Message::loss` wins over the scale.
  [[nodiscard]] std::vector<Piece> render_training(const Conversation& conversation,
                                                   config::LossScale loss_scale) const;
  /// Text that asks for the next answer: everything so far and the generation prompt.
  [[nodiscard]] std::string render_prompt(const Conversation& conversation) const;
  /// Text as the family's own chat_template renders it: a think block in front of the last answer
  /// only.
  [[nodiscard]] std::string render_reference(const Conversation& conversation) const;

 private:
  enum class Think { kNone, kLastAnswer, kEveryAnswer };
  [[nodiscard]] std::vector<Piece> render(const Conversation& conversation,
                                          config::LossScale loss_scale, Think think) const;

  TemplateRow row_;
  std::string identity_;
};

/// Every built-in template; the order decides between templates that render equal.
const std::vector<ChatTemplate>& all_templates();

/// The template of that name; UserError naming every known one.
const ChatTemplate& find_template(std::string_view name);

/// Names of all templates for a message: "chatml, qwen, …".
std::string template_names();

}  // namespace longhaul::text
