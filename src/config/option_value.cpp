#include "config/option_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace longhaul::config {
namespace {

constexpr double kLargestExactInteger = 9007199254740992.0;

/// Units of memory sizes; an ending comes before those that it contains.
struct Unit {
  std::string_view name;
  double bytes;
};
constexpr std::array<Unit, 9> kUnits = {{{"kib", 1024.0},
                                         {"mib", 1048576.0},
                                         {"gib", 1073741824.0},
                                         {"tib", 1099511627776.0},
                                         {"kb", 1e3},
                                         {"mb", 1e6},
                                         {"gb", 1e9},
                                         {"tb", 1e12},
                                         {"b", 1.0}}};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

bool within(double value, const Limits& limits) {
  const bool above = limits.least_open ? value > limits.least : value >= limits.least;
  const bool below = limits.most_open ? value < limits.most : value <= limits.most;
  return above && below;
}

/// One integer, or every one of a list.
bool check_integer(const OptionSpec& spec, OptionValue& value, std::string& fault) {
  for (const std::string& word : value.texts) {
    const auto number = parse_integer(word);
    if (!number) {
      fault = "not an integer";
      return false;
    }
    value.integer = *number;
    value.integers.push_back(*number);
    fault = "out of range";
    if (!within(static_cast<double>(*number), spec.limits)) {
      return false;
    }
  }
  return true;
}

bool check_real(const OptionSpec& spec, OptionValue& value, std::string& fault) {
  const auto number = parse_real(value.texts.front());
  if (!number) {
    fault = "not a number";
    return false;
  }
  value.real = *number;
  fault = "out of range";
  return within(*number, spec.limits);
}

bool check_bytes(const OptionSpec& spec, OptionValue& value, std::string& fault) {
  const auto number = parse_bytes(value.texts.front());
  if (!number) {
    fault = "not a memory size";
    return false;
  }
  value.integer = *number;
  fault = "out of range";
  return within(static_cast<double>(*number), spec.limits);
}

bool check_choices(const OptionSpec& spec, OptionValue& value, std::string& fault) {
  for (const std::string& word : value.texts) {
    const auto found = std::find(spec.choices.begin(), spec.choices.end(), word);
    if (found == spec.choices.end()) {
      fault = "not one of the accepted values";
      return false;
    }
    value.choice = static_cast<std::size_t>(found - spec.choices.begin());
  }
  return true;
}

bool check_json(const OptionSpec& spec, OptionValue& value, std::string& fault) {
  base::JsonFault json_fault;
  const auto object = base::try_parse_json(value.texts.front(), json_fault);
  if (!object) {
    fault = "not valid JSON: " + json_fault.reason;
    return false;
  }
  fault = "not a JSON object of the accepted kind";
  if (!object->is_object()) {
    return false;
  }
  for (const auto& [key, item] : object->items()) {
    if (spec.type == OptionType::kTextMap) {
      if (!item.is_string()) {
        return false;
      }
      value.text_map[key] = item.get<std::string>();
    } else if (spec.type == OptionType::kRealMap) {
      if (!item.is_number() || !std::isfinite(item.get<double>())) {
        return false;
      }
      value.real_map[key] = item.get<double>();
    }
  }
  return true;
}

bool check_boolean(OptionValue& value, std::string& fault) {
  const auto boolean = parse_boolean(value.texts.front());
  fault = "neither true nor false";
  value.boolean = boolean.value_or(false);
  return boolean.has_value();
}

/// Words that no option can mean: an empty one names nothing, and everything is written to JSON later.
bool check_words(const OptionSpec& spec, const std::vector<std::string>& words,
                 std::string& fault) {
  const bool is_text = spec.type == OptionType::kText || spec.type == OptionType::kTextList;
  for (const std::string& word : words) {
    if (!base::is_valid_utf8(word)) {
      fault = "not UTF-8 text";
      return false;
    }
    if (is_text && word.empty()) {
      fault = "is empty";
      return false;
    }
  }
  return true;
}

bool check_typed(const OptionSpec& spec, OptionValue& value, std::string& fault) {
  switch (spec.type) {
    case OptionType::kText:
    case OptionType::kTextList:
      return true;
    case OptionType::kInteger:
    case OptionType::kIntegerList:
      return check_integer(spec, value, fault);
    case OptionType::kReal:
      return check_real(spec, value, fault);
    case OptionType::kBoolean:
      return check_boolean(value, fault);
    case OptionType::kChoice:
    case OptionType::kChoiceList:
      return check_choices(spec, value, fault);
    case OptionType::kBytes:
      return check_bytes(spec, value, fault);
    case OptionType::kTextMap:
    case OptionType::kRealMap:
    case OptionType::kJson:
      return check_json(spec, value, fault);
  }
  return false;
}

std::string number_text(double value, bool whole) {
  return whole ? fmt::format("{}", static_cast<std::int64_t>(value)) : fmt::format("{}", value);
}

std::string limits_text(const Limits& limits, bool whole) {
  const std::string kind = whole ? "an integer" : "a number";
  const std::string least = number_text(limits.least, whole);
  if (whole && (limits.most == 2147483647.0 || limits.most == kLargestExactInteger)) {
    return fmt::format("{} from {}", kind, least);
  }
  const std::string most = number_text(limits.most, whole);
  return fmt::format("{} {} {} {} {}", kind, limits.least_open ? "above" : "from", least,
                     limits.most_open ? "to below" : "to", most);
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() ||
      !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<bool> parse_boolean(std::string_view text) {
  const std::string word = lower(text);
  if (word == "true") {
    return true;
  }
  return word == "false" ? std::optional(false) : std::nullopt;
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  std::string word = lower(text);
  double factor = 1;
  for (const Unit& unit : kUnits) {
    if (word.ends_with(unit.name)) {
      word.erase(word.size() - unit.name.size());
      word.erase(word.find_last_not_of(' ') + 1);
      factor = unit.bytes;
      break;
    }
  }
  const double bytes = parse_real(word).value_or(-1) * factor;
  if (bytes < 0 || bytes > 9.2e18) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(bytes);
}

std::optional<OptionValue> check_value(const OptionSpec& spec,
                                       const std::vector<std::string>& words, std::string& fault) {
  const bool is_list = spec.type == OptionType::kTextList ||
                       spec.type == OptionType::kIntegerList ||
                       spec.type == OptionType::kChoiceList;
  OptionValue value{.texts = words};
  if (words.empty()) {
    if (spec.type != OptionType::kBoolean) {
      fault = "has no value";
      return std::nullopt;
    }
    value.texts = {"true"};  // a bare flag
  }
  if (words.size() > 1 && !is_list) {
    fault = "takes one value";
    return std::nullopt;
  }
  if (!check_words(spec, words, fault) || !check_typed(spec, value, fault)) {
    return std::nullopt;
  }
  return value;
}

std::string accepted_text(const OptionSpec& spec) {
  switch (spec.type) {
    case OptionType::kText:
      return "text";
    case OptionType::kTextList:
      return "one or more words";
    case OptionType::kInteger:
      return limits_text(spec.limits, true);
    case OptionType::kIntegerList:
      return "one or more of " + limits_text(spec.limits, true);
    case OptionType::kReal:
      return limits_text(spec.limits, false);
    case OptionType::kBoolean:
      return "true | false";
    case OptionType::kChoice:
    case OptionType::kChoiceList:
      return fmt::format("{}", fmt::join(spec.choices, " | "));
    case OptionType::kBytes:
      return "a size such as 40e9, 40GB or 40GiB";
    case OptionType::kTextMap:
      return "a JSON object of strings";
    case OptionType::kRealMap:
      return "a JSON object of numbers";
    case OptionType::kJson:
      return "a JSON object";
  }
  return {};
}

}  // namespace longhaul::config
