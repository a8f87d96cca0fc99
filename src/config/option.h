// One row of the option table: what an option is called, what it accepts, what it means, which
// commands take it and how it reaches the Config. The rows drive parsing, --help, docs/config.md
// and args.json.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "config/config.h"

namespace longhaul::config {

enum class OptionType {
  kText,
  kTextList,
  kInteger,
  kIntegerList,
  kReal,
  kBoolean,
  kChoice,
  kChoiceList,
  kBytes,
  kTextMap,  // a JSON object of strings
  kRealMap,  // a JSON object of numbers
  kJson      // any JSON object, not looked into
};

/// What happens to a given value.
enum class OptionState {
  kWorks,
  kNoEffect,  // validated, then named in the start-up line
  kNotYet     // refused, except for the value that means "off"
};

/// Headings of the help and of docs/config.md, in order.
enum class OptionGroup {
  kModel,
  kTuning,
  kData,
  kTraining,
  kParallel,
  kGalore,
  kMemory,
  kOutput,
  kInfer,
  kExport,
  kDataCommand,
  kPlan,
  kBench,
  kWebUi,
  kNoEffect
};

/// A value after its text was checked; the member that the type asks for is set.
struct OptionValue {
  std::vector<std::string> texts{};  // the words as given
  std::int64_t integer = 0;
  std::vector<std::int64_t> integers{};
  double real = 0;
  bool boolean = false;
  std::size_t choice = 0;  // index into OptionSpec::choices
  std::map<std::string, std::string> text_map{};
  std::map<std::string, double> real_map{};
};

/// Set of commands as bits; `bit(Command::kSft) | bit(Command::kPt)`.
using CommandSet = std::uint32_t;
constexpr CommandSet bit(Command command) { return 1U << static_cast<std::uint32_t>(command); }

constexpr CommandSet kTrainCommands = bit(Command::kSft) | bit(Command::kPt) | bit(Command::kPlan);
constexpr CommandSet kDataCommands = kTrainCommands | bit(Command::kData);

/// Bounds of a number.
struct Limits {
  double least = 0;
  double most = 0;
  bool least_open = false;  // `least` itself is not allowed
  bool most_open = false;
};

struct OptionSpec {
  std::string_view name{};
  std::vector<std::string_view> aliases{};
  OptionType type = OptionType::kText;
  OptionState state = OptionState::kWorks;
  std::string_view default_text{};  // for help and documentation
  Limits limits{};
  std::vector<std::string_view> choices{};
  std::string_view off{};   // kNotYet: the value that is accepted because it asks for nothing
  std::string_view help{};  // one sentence without the default and range
  OptionGroup group = OptionGroup::kModel;
  CommandSet commands = 0;
  void (*set)(Config& config, const OptionValue& value) = nullptr;
  base::OrderedJson (*get)(const Config& config, const OptionSpec& spec) = nullptr;

  [[nodiscard]] bool taken_by(Command command) const { return (commands & bit(command)) != 0; }
};

/// Text of the values an option accepts: `an integer from 1 to 65536`, `lora | full`.
std::string accepted_text(const OptionSpec& spec);

}  // namespace longhaul::config
