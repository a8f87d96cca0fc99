// The option table and what is made of it: lookup, parsing of a command line with an optional file
// of options, help texts, docs/config.md and the values for args.json.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "config/config.h"
#include "config/option.h"

namespace longhaul::config {

/// Every option of every command, grouped.
const std::vector<OptionSpec>& option_table();

/// Row of an option by name or alias (`lora_rank`, dashes count as underscores); null when there is
/// none.
const OptionSpec* find_option(std::string_view name);

/// The name nearest to `word` by edit distance, if near enough to be a slip; for "unknown …"
/// messages.
std::optional<std::string> nearest_name(std::string_view word,
                                        std::span<const std::string_view> names);

/// Every command as typed, in the order of the help.
std::span<const std::string_view> command_names();
std::string_view command_name(Command command);
std::optional<Command> find_command(std::string_view name);
/// False for commands that exist in the table only (eval, web-ui).
bool is_available(Command command);

/// What the words after the command say. Faults are collected, not thrown.
struct ParsedOptions {
  Config config{};  // command, options and `given`; nothing decided yet
  std::vector<base::Problem> problems{};
  bool wants_help = false;
  std::vector<std::pair<std::string, std::string>> environment{};  // ENV of the options file
};

/// Parses `--name value…`, `--name=value` and a leading .yaml/.yml/.json file; later values win.
ParsedOptions parse_options(Command command, std::span<const std::string> words);

/// `longhaul --help`.
std::string general_help();
/// `longhaul COMMAND --help`.
std::string command_help(Command command);
/// The whole docs/config.md.
std::string config_markdown();

/// Name → value of every option that has an effect on the config's command, in table order
/// (args.json).
base::OrderedJson options_json(const Config& config);

}  // namespace longhaul::config
