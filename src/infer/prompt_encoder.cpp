#include "infer/prompt_encoder.h"

#include <utility>

namespace longhaul::infer {
namespace {

/// No template: a template of empty texts.
const text::ChatTemplate& bare_template() {
  static const text::ChatTemplate bare{text::TemplateRow{.name = "none"}};
  return bare;
}

}  // namespace

PromptEncoder::PromptEncoder(text::Tokenizer tokenizer, const text::ChatTemplate* chat_template,
                             std::optional<std::string> system)
    : tokenizer_(std::move(tokenizer)),
      chat_template_(chat_template == nullptr ? &bare_template() : chat_template),
      system_(std::move(system)) {}

text::Conversation PromptEncoder::complete(text::Conversation conversation) const {
  if (!conversation.system) {
    conversation.system = system_;
  }
  return conversation;
}

std::vector<std::int32_t> PromptEncoder::encode(const text::Conversation& conversation) const {
  return tokenizer_.encode(chat_template_->render_prompt(complete(conversation)));
}

const std::vector<std::string>& PromptEncoder::stop_words() const {
  return chat_template_->stop_words();
}

}  // namespace longhaul::infer
