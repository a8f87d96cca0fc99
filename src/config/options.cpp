// The table, lookup by name, commands, and the values for args.json.
#include "config/options.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "config/option_rows.h"

namespace longhaul::config {
namespace {

/// In the order of the enumerators of Command.
constexpr std::array<std::string_view, 10> kCommandNames = {
    "sft", "pt", "plan", "infer", "eval", "export", "data", "bench", "web-ui", "doctor"};

std::vector<OptionSpec> make_table() {
  std::vector<OptionSpec> table;
  for (const auto& part : {model_rows(), tuning_rows(), data_rows(), training_rows(),
                           parallel_rows(), output_rows(), command_rows(), no_effect_rows()}) {
    table.insert(table.end(), part.begin(), part.end());
  }
  return table;
}

/// Edit distance that counts a swap of neighbours as one step.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_up(b.size() + 1);
  std::vector<std::size_t> up(b.size() + 1);
  std::iota(up.begin(), up.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = up[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U);
      row[j] = std::min({up[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_up[j - 2] + 1);
      }
    }
    two_up = std::move(up);
    up = std::move(row);
  }
  return up[b.size()];
}

}  // namespace

const std::vector<OptionSpec>& option_table() {
  static const std::vector<OptionSpec> kTable = make_table();
  return kTable;
}

const OptionSpec* find_option(std::string_view name) {
  std::string plain(name);
  std::replace(plain.begin(), plain.end(), '-', '_');
  for (const OptionSpec& spec : option_table()) {
    if (spec.name == plain ||
        std::find(spec.aliases.begin(), spec.aliases.end(), plain) != spec.aliases.end()) {
      return &spec;
    }
  }
  return nullptr;
}

std::optional<std::string> nearest_name(std::string_view word,
                                        std::span<const std::string_view> names) {
  constexpr std::size_t kLongestWord = 100;  // the distance is quadratic
  const std::size_t limit = std::max<std::size_t>(2, word.size() / 3);
  std::optional<std::string> best;
  std::size_t best_distance = limit + 1;
  for (const std::string_view name : names) {
    const std::size_t longer = std::max(word.size(), name.size());
    const std::size_t shorter = std::min(word.size(), name.size());
    if (word.size() > kLongestWord || longer - shorter >= best_distance) {
      continue;  // cannot be nearer
    }
    const std::size_t distance = edit_distance(word, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = std::string(name);
    }
  }
  return best;
}

std::span<const std::string_view> command_names() { return kCommandNames; }

std::string_view command_name(Command command) {
  return kCommandNames.at(static_cast<std::size_t>(command));
}

std::optional<Command> find_command(std::string_view name) {
  const auto found = std::find(kCommandNames.begin(), kCommandNames.end(), name);
  if (found == kCommandNames.end()) {
    return std::nullopt;
  }
  return static_cast<Command>(found - kCommandNames.begin());
}

bool is_available(Command command) {
  return command != Command::kEval && command != Command::kWebUi;
}

base::OrderedJson options_json(const Config& config) {
  base::OrderedJson values = base::OrderedJson::object();
  for (const OptionSpec& spec : option_table()) {
    if (spec.get != nullptr && spec.taken_by(config.command)) {
      values[std::string(spec.name)] = spec.get(config, spec);
    }
  }
  return values;
}

}  // namespace longhaul::config
