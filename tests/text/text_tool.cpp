// Drives the text folder from a script: what the Python oracles compare against.
//   text_tool tokenize FOLDER < LINES     each line a JSON string → a JSON list of ids
//   text_tool decode FOLDER < LINES       each line {"ids": […], "skip_special": bool} → a JSON string
//   text_tool stream FOLDER < LINES       the same, one id at a time
//   text_tool speed FOLDER FILE           tokens, seconds of one pass over a file
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <iostream>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace {

using longhaul::base::Json;
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

int speed(const Tokenizer& tokenizer, const std::string& file) {
  const std::string text = longhaul::base::read_file(file);
  for (int pass = 0; pass < 3; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode(text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::cout << fmt::format("{} tokens, {:.3f} s, {:.2f} million tokens/s\n", ids.size(),
                             seconds.count(), static_cast<double>(ids.size()) / seconds.count() / 1e6);
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
