// Words of a command line → options. A leading file of options is read first, so that flags
// override it; every fault is collected.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "config/option_file.h"
#include "config/option_value.h"
#include "config/options.h"

namespace longhaul::config {
namespace {

bool is_flag(std::string_view word) {
  return word.size() > 2 && word.starts_with("--") && word[2] != '-';
}

/// Splits the words after the command into named values.
void collect_flags(std::span<const std::string> words, std::vector<GivenOption>& given,
                   ParsedOptions& parsed) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--help" || word == "-h") {
      parsed.wants_help = true;
      continue;
    }
    if (!is_flag(word)) {
      parsed.problems.push_back({.where = word,
                                 .what = "unexpected word",
                                 .hint = "Options are written as --name value"});
      continue;
    }
    const std::size_t equals = word.find('=');
    GivenOption option{.name = word.substr(2, equals == std::string::npos ? equals : equals - 2)};
    option.where = "--" + option.name;
    if (equals != std::string::npos) {
      option.words.push_back(word.substr(equals + 1));
    }
    while (i + 1 < words.size() && !is_flag(words[i + 1]) && words[i + 1] != "-h") {
      option.words.push_back(words[++i]);
    }
    given.push_back(std::move(option));
  }
}

std::string commands_of(const OptionSpec& spec) {
  std::string text;
  for (std::size_t i = 0; i < command_names().size(); ++i) {
    if (spec.taken_by(static_cast<Command>(i))) {
      text += (text.empty() ? "" : ", ") + std::string(command_names()[i]);
    }
  }
  return text;
}

base::Problem unknown_option(const GivenOption& option, const OptionSpec* elsewhere,
                             Command command) {
  const std::string_view name = command_name(command);
  if (elsewhere != nullptr) {
    return {.where = option.where,
            .what = fmt::format("not an option of longhaul {}", name),
            .hint = "It belongs to " + commands_of(*elsewhere)};
  }
  std::vector<std::string_view> names;
  for (const OptionSpec& spec : option_table()) {
    if (spec.taken_by(command)) {
      names.push_back(spec.name);
      names.insert(names.end(), spec.aliases.begin(), spec.aliases.end());
    }
  }
  const auto nearest = nearest_name(option.name, names);
  return {.where = option.where,
          .what = "unknown option",
          .hint = nearest ? fmt::format("Did you mean --{}?", *nearest)
                          : fmt::format("longhaul {} --help lists all", name)};
}

/// True when the given value of an option that does not exist yet asks for nothing.
bool is_off(const OptionSpec& spec, const OptionValue& value) {
  if (spec.off.empty()) {
    return false;
  }
  return spec.type == OptionType::kBoolean ? value.boolean == (spec.off == "true")
                                           : value.texts.front() == spec.off;
}

void apply(const OptionSpec& spec, const GivenOption& option, ParsedOptions& parsed) {
  const std::string words = fmt::format("{}", fmt::join(option.words, " "));
  std::string fault;
  const auto value = check_value(spec, option.words, fault);
  // Also without a usable value: an option that is at fault is not missing, too.
  parsed.config.given[std::string(spec.name)] =
      value ? fmt::format("{}", fmt::join(value->texts, " ")) : words;
  if (!value) {
    parsed.problems.push_back(
        {.where = option.where, .what = fault, .got = words, .expected = accepted_text(spec)});
    return;
  }
  if (spec.state == OptionState::kNotYet && !is_off(spec, *value)) {
    parsed.problems.push_back({.where = option.where, .what = "not available yet", .got = words});
    return;
  }
  if (spec.state == OptionState::kNoEffect) {
    parsed.config.no_effect.emplace_back(spec.name);
  }
  if (spec.set != nullptr) {
    spec.set(parsed.config, *value);
  }
}

void start_from_command(Config& config, Command command) {
  config.command = command;
  if (command == Command::kPt) {
    config.model.use_chat_template = false;
    config.data.loss_scale = LossScale::kAll;
  }
  if (command == Command::kBench) {  // what the published figures were measured with
    config.tuning.lora_rank = 16;
    config.tuning.lora_dropout = 0;
  }
}

}  // namespace

ParsedOptions parse_options(Command command, std::span<const std::string> words) {
  ParsedOptions parsed;
  start_from_command(parsed.config, command);
  std::vector<GivenOption> given;
  if (command == Command::kBench && !words.empty() && !words.front().starts_with('-')) {
    parsed.config.bench.part = words.front();
    words = words.subspan(1);
  }
  if (!words.empty() && is_option_file(words.front())) {
    read_option_file(words.front(), given, parsed.environment, parsed.problems);
    words = words.subspan(1);
  }
  collect_flags(words, given, parsed);
  std::map<const OptionSpec*, const GivenOption*> last;
  std::vector<const OptionSpec*> order;
  for (const GivenOption& option : given) {
    const OptionSpec* spec = find_option(option.name);
    if (spec == nullptr || !spec->taken_by(command)) {
      parsed.problems.push_back(unknown_option(option, spec, command));
      continue;
    }
    if (last.count(spec) == 0) {
      order.push_back(spec);
    }
    last[spec] = &option;
  }
  for (const OptionSpec* spec : order) {
    apply(*spec, *last.at(spec), parsed);
  }
  return parsed;
}

}  // namespace longhaul::config
