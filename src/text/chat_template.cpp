#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace longhaul::text {
namespace {

/// The ChatML family: rows differ in name, default system text, think block and stop words.
TemplateRow chatml_row(std::string name, std::optional<std::string> default_system = std::nullopt,
                       std::string empty_think = {}, std::vector<std::string> more_stops = {}) {
  TemplateRow row{.name = std::move(name),
                  .prefix = "",
                  .system_open = "<|im_start|>system\n",
                  .system_close = "<|im_end|>\n",
                  .user_open = "<|im_start|>user\n",
                  .user_close = "<|im_end|>\n",
                  .assistant_open = "<|im_start|>assistant\n",
                  .assistant_close = "<|im_end|>\n",
                  .default_system = std::move(default_system),
                  .empty_think = std::move(empty_think),
                  .stop_words = {"<|im_end|>"}};
  row.stop_words.insert(row.stop_words.end(), more_stops.begin(), more_stops.end());
  return row;
}

/// Llama 3 and its later editions, whose system block always opens with two lines about dates.
TemplateRow llama3_row(std::string name, const std::string& system_lines,
                       std::optional<std::string> default_system) {
  return {.name = std::move(name),
          .prefix = "<|begin_of_text|>",
          .system_open = "<|start_header_id|>system<|end_header_id|>\n\n" + system_lines,
          .system_close = "<|eot_id|>",
          .user_open = "<|start_header_id|>user<|end_header_id|>\n\n",
          .user_close = "<|eot_id|>",
          .assistant_open = "<|start_header_id|>assistant<|end_header_id|>\n\n",
          .assistant_close = "<|eot_id|>",
          .default_system = std::move(default_system),
          .empty_think = "",
          .stop_words = {"<|eot_id|>"}};
}

std::vector<ChatTemplate> make_templates() {
  std::vector<ChatTemplate> templates;
  const auto add = [&templates](TemplateRow row) { templates.emplace_back(std::move(row)); };
  add(chatml_row("chatml"));
  add(chatml_row("qwen", "You are a helpful assistant.", "", {"<|endoftext|>"}));
  add(chatml_row("qwen2_5", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
                 "", {"<|endoftext|>"}));
  add(chatml_row("qwen3", std::nullopt, "<think>\n\n</think>\n\n", {"<|endoftext|>"}));
  add(chatml_row("qwen3_nothinking", std::nullopt, "", {"<|endoftext|>"}));
  add(llama3_row("llama3", "", std::nullopt));
  add(llama3_row("llama3_1", "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
                 ""));
  add(chatml_row("smollm2",
                 "You are a helpful AI assistant named SmolLM, trained by Hugging Face"));
  return templates;
}

std::string identity_of(const TemplateRow& row) {
  std::string text;
  // Lengths keep neighbouring fields apart.
  const auto add = [&text](const std::string& field) {
    text += fmt::format("{}:{};", field.size(), field);
  };
  for (const std::string* const field :
       {&row.name, &row.prefix, &row.system_open, &row.system_close, &row.user_open,
        &row.user_close, &row.assistant_open, &row.assistant_close, &row.empty_think}) {
    add(*field);
  }
  add(row.default_system ? "=" + *row.default_system : "");
  return base::checksum_text(text);
}

void append(std::vector<Piece>& pieces, std::string_view text, bool loss) {
  if (text.empty()) {
    return;
  }
  if (pieces.empty() || pieces.back().loss != loss) {
    pieces.push_back({std::string(text), loss});
  } else {
    pieces.back().text += text;
  }
}

bool has_think_block(std::string_view answer) {
  const std::size_t begin = answer.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && answer.substr(begin).starts_with("<think>");
}

/// Index of the last message of a role, or the number of messages when there is none.
std::size_t last_index(const std::vector<Message>& messages, Role role) {
  for (std::size_t i = messages.size(); i > 0; --i) {
    if (messages[i - 1].role == role) {
      return i - 1;
    }
  }
  return messages.size();
}

std::string joined(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    text += piece.text;
  }
  return text;
}

}  // namespace

ChatTemplate::ChatTemplate(TemplateRow row) : row_(std::move(row)), identity_(identity_of(row_)) {}

std::vector<Piece> ChatTemplate::render(const Conversation& conversation,
                                        config::LossScale loss_scale, Think think) const {
  const bool all = loss_scale == config::LossScale::kAll;
  const std::vector<Message>& messages = conversation.messages;
  const std::size_t last_answer = last_index(messages, Role::kAssistant);
  std::vector<Piece> pieces;
  append(pieces, row_.prefix, all);
  if (const auto& system = conversation.system ? conversation.system : row_.default_system) {
    append(pieces, row_.system_open + *system + row_.system_close, all);
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool is_answer = message.role == Role::kAssistant;
    const bool by_scale =
        all || (is_answer && (loss_scale == config::LossScale::kDefault || i == last_answer));
    const bool loss = message.loss.value_or(by_scale);
    if (!is_answer) {
      const bool system = message.role == Role::kSystem;
      append(pieces, system ? row_.system_open : row_.user_open, all);
      append(pieces, message.content + (system ? row_.system_close : row_.user_close), loss);
      continue;
    }
    append(pieces, row_.assistant_open, all);
    const bool wants_think =
        think == Think::kEveryAnswer ||
        (think == Think::kLastAnswer && i == last_answer && i + 1 == messages.size());
    if (wants_think && !has_think_block(message.content)) {
      append(pieces, row_.empty_think, all);
    }
    append(pieces, message.content + row_.assistant_close, loss);
  }
  return pieces;
}

std::vector<Piece> ChatTemplate::render_training(const Conversation& conversation,
                                                 config::LossScale loss_scale) const {
  return render(conversation, loss_scale, Think::kEveryAnswer);
}

std::string ChatTemplate::render_prompt(const Conversation& conversation) const {
  return joined(render(conversation, config::LossScale::kAll, Think::kNone)) + row_.assistant_open;
}

std::string ChatTemplate::render_reference(const Conversation& conversation) const {
  return joined(render(conversation, config::LossScale::kAll, Think::kLastAnswer));
}

const std::vector<ChatTemplate>& all_templates() {
  static const std::vector<ChatTemplate> kTemplates = make_templates();
  return kTemplates;
}

const ChatTemplate& find_template(std::string_view name) {
  const auto& templates = all_templates();
  const auto at = std::find_if(templates.begin(), templates.end(),
                               [name](const ChatTemplate& row) { return row.name() == name; });
  if (at == templates.end()) {
    throw base::UserError({.where = "--template",
                           .what = "unknown template",
                           .got = std::string(name),
                           .expected = "one of " + template_names()});
  }
  return *at;
}

std::string template_names() {
  std::string names;
  for (const ChatTemplate& row : all_templates()) {
    names += (names.empty() ? "" : ", ") + row.name();
  }
  return names;
}

}  // namespace longhaul::text
