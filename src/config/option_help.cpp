// Texts made of the option table: --help and docs/config.md.
#include <fmt/format.h>

#include <array>

#include "config/bench_rules.h"
#include "config/options.h"

namespace longhaul::config {
namespace {

/// In the order of OptionGroup.
constexpr std::array<std::string_view, 15> kGroupNames = {
    "Model",        "Tuning", "Data",   "Training", "Parallelism and sharding",
    "GaLore",       "Memory", "Output", "Infer",    "Export",
    "Data command", "Plan",   "Bench",  "Web page", "Accepted without effect"};

struct CommandText {
  Command command;
  std::string_view summary;
};

constexpr std::array<CommandText, 10> kCommands = {{
    {Command::kSft, "fine-tune a model"},
    {Command::kPt, "the same on plain text: sft --use_chat_template false --loss_scale all"},
    {Command::kPlan, "print what sft would do on these ranks (mesh, memory, time) and stop"},
    {Command::kInfer, "chat with a model, or answer a JSONL file"},
    {Command::kEval, "score a model on a JSONL file"},
    {Command::kExport, "merge an adapter into its base model"},
    {Command::kData, "show what training will see"},
    {Command::kBench, "measure train steps, attention or exchanges of a model with random weights"},
    {Command::kWebUi, "web page to start and watch runs"},
    {Command::kDoctor, "check this machine"},
}};

std::string_view group_name(OptionGroup group) {
  return kGroupNames.at(static_cast<std::size_t>(group));
}

std::string option_names(const OptionSpec& spec) {
  std::string text = fmt::format("--{}", spec.name);
  for (const std::string_view alias : spec.aliases) {
    text += fmt::format(", --{}", alias);
  }
  return text;
}

/// `|` ends a cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  }
  return escaped;
}

std::string state_note(const OptionSpec& spec) {
  if (spec.state != OptionState::kNotYet) {
    return {};
  }
  return spec.off.empty() ? " (not available yet)"
                          : fmt::format(" (not available yet; only {} is accepted)", spec.off);
}

std::string commands_cell(const OptionSpec& spec) {
  std::string text;
  for (const CommandText& command : kCommands) {
    if (spec.taken_by(command.command)) {
      text += (text.empty() ? "" : " ") + std::string(command_name(command.command));
    }
  }
  return text;
}

std::string markdown_group(OptionGroup group) {
  std::string text = fmt::format("\n## {}\n\n", group_name(group));
  text += "| option | values | default | meaning | commands |\n| --- | --- | --- | --- | --- |\n";
  for (const OptionSpec& spec : option_table()) {
    if (spec.group == group) {
      text += fmt::format("| `{}` | {} | {} | {}{} | {} |\n", option_names(spec),
                          cell(accepted_text(spec)), cell(spec.default_text), cell(spec.help),
                          state_note(spec), commands_cell(spec));
    }
  }
  return text;
}

}  // namespace

std::string general_help() {
  std::string text =
      "longhaul fine-tunes language models on sequences longer than one device holds.\n\n"
      "Usage: longhaul COMMAND [OPTIONS.yaml|OPTIONS.json] [--name value ...]\n\nCommands:\n";
  for (const CommandText& command : kCommands) {
    text += fmt::format("  {:<8} {}{}\n", command_name(command.command), command.summary,
                        is_available(command.command) ? "" : " (not available yet)");
  }
  text +=
      "\nlonghaul COMMAND --help lists the options of a command, longhaul --version the versions.\n"
      "NPROC_PER_NODE=2 longhaul sft ... starts two ranks.\n";
  return text;
}

std::string command_help(Command command) {
  const bool has_parts = command == Command::kBench;
  std::string text = fmt::format(
      "longhaul {}: {}{}\n\nUsage: longhaul {}{} [OPTIONS.yaml|OPTIONS.json] "
      "[--name value ...]\n",
      command_name(command), kCommands.at(static_cast<std::size_t>(command)).summary,
      is_available(command) ? "" : " (not available yet)", command_name(command),
      has_parts ? fmt::format(" {}", fmt::join(bench_parts(), "|")) : "");
  std::string_view group;
  for (const OptionSpec& spec : option_table()) {
    if (!spec.taken_by(command)) {
      continue;
    }
    if (group != group_name(spec.group)) {
      group = group_name(spec.group);
      text += fmt::format("\n{}:\n", group);
    }
    text += fmt::format("  {}  {}; default: {}\n      {}{}\n", option_names(spec),
                        accepted_text(spec), spec.default_text, spec.help, state_note(spec));
  }
  return text;
}

std::string config_markdown() {
  std::string text =
      "# Options\n\n"
      "Generated from the option table by `longhaul config-docs`; do not edit.\n\n"
      "Options are written `--name value` or `--name=value`; lists are separated by spaces; a "
      "later "
      "option wins. A first argument that\nends in `.yaml`, `.yml` or `.json` is a file of options "
      "(one key per option; `ENV` maps to environment variables that are not\nset yet); flags "
      "after "
      "it win. A boolean without a value means `true`. Values out of range, unknown options and "
      "contradictions end\nthe program with exit code 2; all of them are listed at once.\n\n"
      "| command | does |\n| --- | --- |\n";
  for (const CommandText& command : kCommands) {
    text +=
        fmt::format("| `longhaul {}` | {}{} |\n", command_name(command.command), command.summary,
                    is_available(command.command) ? "" : " (not available yet)");
  }
  for (std::size_t group = 0; group < kGroupNames.size(); ++group) {
    text += markdown_group(static_cast<OptionGroup>(group));
  }
  return text;
}

}  // namespace longhaul::config
