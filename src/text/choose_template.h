// Which built-in template a model's data gets: the one asked for, or the one that renders probe
// chats exactly as the chat_template in the model folder does.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja.h"
#include "text/tokenizer_config.h"

namespace longhaul::text {

struct TemplateChoice {
  const ChatTemplate* chat_template = nullptr;  // never null
  std::string how;                              // for the start-up print
};

/// `name` empty: the model decides. UserError naming the candidates when none renders equal, the
/// model's template has a construct we do not know, or the model has none; UserError for an unknown
/// name.
TemplateChoice choose_template(const std::filesystem::path& model_folder, const std::string& name);

/// A chat as the model's own template is asked to render it.
struct ProbeChat {
  Conversation conversation;
  bool wants_answer = false;  // ends with a question: rendered with the generation prompt
};

/// The fixed chats: with and without system, one and two rounds, with and without the last answer.
std::vector<ProbeChat> probe_chats();

/// Renders a chat with a model's own template, as apply_chat_template does.
std::string render_with_model(const JinjaTemplate& model_template, const TokenizerConfig& config,
                              const ProbeChat& chat);

/// The text of `--system`: the option itself, or the contents of the file when it names a .txt
/// file.
std::string system_text(const std::string& option);

}  // namespace longhaul::text
