// Ties a row of the option table to a member of Config: the setter and the getter follow from the
// member's type.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "config/option.h"

namespace longhaul::config {

inline void assign(std::string& field, const OptionValue& value) { field = value.texts.front(); }
inline void assign(std::vector<std::string>& field, const OptionValue& value) {
  field = value.texts;
}
inline void assign(std::int64_t& field, const OptionValue& value) { field = value.integer; }
inline void assign(std::vector<std::int64_t>& field, const OptionValue& value) {
  field = value.integers;
}
inline void assign(double& field, const OptionValue& value) { field = value.real; }
inline void assign(bool& field, const OptionValue& value) { field = value.boolean; }
inline void assign(std::map<std::string, std::string>& field, const OptionValue& value) {
  field = value.text_map;
}
inline void assign(std::map<std::string, double>& field, const OptionValue& value) {
  field = value.real_map;
}
inline void assign(base::Dtype& field, const OptionValue& value) {
  field = base::dtype_from_name(value.texts.front()).value_or(base::Dtype::kFloat32);
}
/// Choices are listed in the order of the enumerators.
template <typename Enum>
requires std::is_enum_v<Enum>
void assign(Enum& field, const OptionValue& value) { field = static_cast<Enum>(value.choice); }
template <typename T>
void assign(std::optional<T>& field, const OptionValue& value) {
  T inner{};
  assign(inner, value);
  field = inner;
}

template <typename T>
base::OrderedJson to_json(const T& field, const std::vector<std::string_view>& choices) {
  if constexpr (std::is_same_v<T, base::Dtype>) {
    return std::string(base::dtype_name(field));
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(choices.at(static_cast<std::size_t>(field)));
  } else {
    return field;
  }
}
template <typename T>
base::OrderedJson to_json(const std::optional<T>& field,
                          const std::vector<std::string_view>& choices) {
  return field ? to_json(*field, choices) : base::OrderedJson(nullptr);
}

/// Row of `spec` for the member `Member` of the section `Section` of Config.
template <auto Section, auto Member>
OptionSpec bind(OptionSpec spec) {
  spec.set = [](Config& config, const OptionValue& value) {
    assign((config.*Section).*Member, value);
  };
  spec.get = [](const Config& config, const OptionSpec& row) {
    return to_json((config.*Section).*Member, row.choices);
  };
  return spec;
}

/// Largest integer that every number format of the option files carries exactly.
constexpr double kLargestSeed = 9007199254740992.0;
constexpr double kLargestCount = 2147483647.0;

}  // namespace longhaul::config
