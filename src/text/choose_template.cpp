#include "text/choose_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace longhaul::text {
namespace {

base::OrderedJson message_json(const char* role, const std::string& content) {
  base::OrderedJson message = base::OrderedJson::object();
  message["role"] = role;
  message["content"] = content;
  return message;
}

std::string own_rendering(const ChatTemplate& row, const ProbeChat& chat) {
  return chat.wants_answer ? row.render_prompt(chat.conversation)
                           : row.render_reference(chat.conversation);
}

/// Some published templates add the generation prompt whether asked or not.
bool renders_equal(const ChatTemplate& row, const ProbeChat& chat, const std::string& expected) {
  return own_rendering(row, chat) == expected ||
         (!chat.wants_answer && row.render_prompt(chat.conversation) == expected);
}

[[noreturn]] void refuse(const std::string& where, std::string what) {
  throw base::UserError(base::Problem{.where = where,
                                      .what = std::move(what),
                                      .hint = "Choose one with --template: " + template_names()});
}

}  // namespace

std::vector<ProbeChat> probe_chats() {
  const Message first_question{Role::kUser, "How much is 2 + 3?\nAnswer \"shortly\" <please>.", {}};
  const Message first_answer{Role::kAssistant, "It is 5 & that's all.", {}};
  const Message second_question{Role::kUser, "Und auf Deutsch: größer als 4?", {}};
  const Message second_answer{Role::kAssistant, "Ja,\n\n5 > 4.", {}};
  std::vector<ProbeChat> chats;
  for (const bool has_system : {false, true}) {
    Conversation chat;
    if (has_system) {
      chat.system = "You answer in one sentence.";
    }
    for (const Message& message : {first_question, first_answer, second_question, second_answer}) {
      chat.messages.push_back(message);
      chats.push_back({chat, message.role == Role::kUser});
    }
  }
  return chats;
}

std::string render_with_model(const JinjaTemplate& model_template, const TokenizerConfig& config,
                              const ProbeChat& chat) {
  base::OrderedJson variables = base::OrderedJson::object();
  for (const auto& [name, text] : config.special_tokens) {
    variables[name] = text;
  }
  base::OrderedJson messages = base::OrderedJson::array();
  if (chat.conversation.system) {
    messages.push_back(message_json("system", *chat.conversation.system));
  }
  for (const Message& message : chat.conversation.messages) {
    messages.push_back(
        message_json(message.role == Role::kUser ? "user" : "assistant", message.content));
  }
  variables["messages"] = std::move(messages);
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = chat.wants_answer;
  return model_template.render(variables);
}

TemplateChoice choose_template(const std::filesystem::path& model_folder, const std::string& name) {
  if (!name.empty()) {
    return {&find_template(name), "from --template"};
  }
  const TokenizerConfig config = load_tokenizer_config(model_folder);
  if (!config.chat_template) {
    refuse(model_folder.string(), "the model has no chat_template and --template is not given");
  }
  std::vector<const ChatTemplate*> equal;
  for (const ChatTemplate& row : all_templates()) {
    equal.push_back(&row);
  }
  try {
    const JinjaTemplate model_template =
        JinjaTemplate::parse(*config.chat_template, config.chat_template_where);
    for (const ProbeChat& chat : probe_chats()) {
      const std::string expected = render_with_model(model_template, config, chat);
      std::erase_if(equal,
                    [&](const ChatTemplate* row) { return !renders_equal(*row, chat, expected); });
    }
  } catch (const base::UserError& error) {
    const base::Problem& problem = error.problems().front();
    refuse(problem.where, "the model's chat_template cannot be evaluated: " + problem.what);
  }
  if (equal.empty()) {
    refuse(config.chat_template_where,
           "the model's chat_template renders like no built-in template");
  }
  std::string how = "renders like the model's chat_template";
  if (equal.size() > 1) {
    how += " (as do";
    for (std::size_t i = 1; i < equal.size(); ++i) {
      how += (i == 1 ? " " : ", ") + equal[i]->name();
    }
    how += ")";
  }
  return {equal.front(), std::move(how)};
}

std::string system_text(const std::string& option) {
  std::string text = option.ends_with(".txt") ? base::read_file(option) : option;
  if (!base::is_valid_utf8(text)) {
    throw base::UserError({.where = "--system",
                           .what = "not UTF-8 text",
                           .got = option,
                           .hint = "Save the file in UTF-8"});
  }
  return text;
}

}  // namespace longhaul::text
