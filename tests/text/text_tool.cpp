// Drives the text folder from a script: what the Python oracles compare against.
//   text_tool tokenize FOLDER < LINES     each line a JSON string → a JSON list of ids
//   text_tool decode FOLDER < LINES       each line {"ids": […], "skip_special": bool} → a JSON
//   string text_tool stream FOLDER < LINES       the same, one id at a time text_tool jinja - <
//   LINES             each line {"template": …, "variables": {…}} → {"text": …} or {"error": …}
//   text_tool render NAME < LINES         each line {"messages": […], "loss_scale": …} → how a
//   built-in template
//                                         renders it: {"pieces": [[text, loss]…], "prompt": …,
//                                         "reference": …}
//   text_tool choose FOLDER               the template chosen for a model folder
//   text_tool encode NAME FOLDER < LINES  each line as for render → {"input_ids": […], "labels":
//   […]} text_tool speed FOLDER FILE           tokens, seconds of one pass over a file
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/choose_template.h"
#include "text/jinja.h"
#include "text/sample_encoder.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace {

using longhaul::base::Json;
using longhaul::base::OrderedJson;
using longhaul::config::LossScale;
using longhaul::text::Conversation;
using longhaul::text::Role;
using longhaul::text::Tokenizer;

template <typename Function>
int for_each_line(Function function) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << function(Json::parse(line)).dump() << '\n';
  }
  return 0;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool skip) {
  longhaul::text::StreamDecoder decoder(tokenizer, skip);
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string part = decoder.push(id);
    if (!longhaul::base::is_valid_utf8(part)) {
      throw std::runtime_error("a part of a character came out");
    }
    text += part;
  }
  return text + decoder.flush();
}

Json jinja(const Json& row) {
  try {
    const auto parsed =
        longhaul::text::JinjaTemplate::parse(row.at("template").get<std::string>(), "t");
    return {{"text", parsed.render(OrderedJson::parse(row.at("variables").get<std::string>()))}};
  } catch (const longhaul::base::UserError& error) {
    return {{"error", error.what()}};
  }
}

Conversation conversation_of(const Json& row) {
  Conversation conversation;
  for (const Json& message : row.at("messages")) {
    const auto role = message.at("role").get<std::string>();
    const auto content = message.at("content").get<std::string>();
    if (role == "system") {
      conversation.system = content;
      continue;
    }
    conversation.messages.push_back(
        {role == "user" ? Role::kUser : Role::kAssistant, content, std::nullopt});
    if (message.contains("loss")) {
      conversation.messages.back().loss = message.at("loss").get<bool>();
    }
  }
  return conversation;
}

LossScale loss_scale_of(const Json& row) {
  const std::string name = row.value("loss_scale", "default");
  return name == "all" ? LossScale::kAll
                       : (name == "last_round" ? LossScale::kLastRound : LossScale::kDefault);
}

Json render(const longhaul::text::ChatTemplate& chat_template, const Json& row) {
  const Conversation conversation = conversation_of(row);
  Json pieces = Json::array();
  for (const auto& piece : chat_template.render_training(conversation, loss_scale_of(row))) {
    pieces.push_back(Json::array({piece.text, piece.loss}));
  }
  return {{"pieces", pieces},
          {"prompt", chat_template.render_prompt(conversation)},
          {"reference", chat_template.render_reference(conversation)}};
}

Json encode(const Tokenizer& tokenizer, const longhaul::text::ChatTemplate& chat_template,
            const Json& row) {
  const longhaul::text::SampleEncoder encoder(tokenizer, &chat_template,
                                              {.loss_scale = loss_scale_of(row)});
  const auto sample = encoder.encode(conversation_of(row));
  return {{"input_ids", sample.ids}, {"labels", sample.labels}};
}

int speed(const Tokenizer& tokenizer, const std::string& file) {
  const std::string text = longhaul::base::read_file(file);
  for (int pass = 0; pass < 3; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode(text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << fmt::format("{} tokens, {:.3f} s, {:.2f} million tokens/s\n", ids.size(),
                             seconds.count(),
                             static_cast<double>(ids.size()) / seconds.count() / 1e6);
  }
  return 0;
}

int run(const std::string& command, int argc, char** argv) {
  if (command == "tokenize" || command == "decode" || command == "stream" || command == "speed") {
    const auto tokenizer = Tokenizer::load(argv[2]);
    if (command == "speed" && argc > 3) {
      return speed(tokenizer, argv[3]);
    }
    if (command == "tokenize") {
      return for_each_line(
          [&](const Json& row) { return Json(tokenizer.encode(row.get<std::string>())); });
    }
    return for_each_line([&](const Json& row) {
      const auto ids = row.at("ids").get<std::vector<std::int32_t>>();
      const bool skip = row.at("skip_special").get<bool>();
      return Json(command == "decode" ? tokenizer.decode(ids, skip) : stream(tokenizer, ids, skip));
    });
  }
  if (command == "jinja") {
    return for_each_line(jinja);
  }
  if (command == "render") {
    const auto& chat_template = longhaul::text::find_template(argv[2]);
    return for_each_line([&](const Json& row) { return render(chat_template, row); });
  }
  if (command == "encode" && argc > 3) {
    const auto& chat_template = longhaul::text::find_template(argv[2]);
    const auto tokenizer = Tokenizer::load(argv[3]);
    return for_each_line([&](const Json& row) { return encode(tokenizer, chat_template, row); });
  }
  if (command == "choose") {
    const auto choice = longhaul::text::choose_template(argv[2], "");
    std::cout << choice.chat_template->name() << '\n' << choice.how << '\n';
    return 0;
  }
  std::cerr << "unknown command " << command << '\n';
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: text_tool COMMAND FOLDER …\n";
    return 2;
  }
  try {
    return run(argv[1], argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
