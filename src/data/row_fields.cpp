#include "data/row_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul::data {
namespace {

using base::OrderedJson;

/// Name of a JSON type for people.
std::string_view type_name(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::null:
      return "null";
    case OrderedJson::value_t::boolean:
      return "true or false";
    case OrderedJson::value_t::string:
      return "text";
    case OrderedJson::value_t::array:
      return "a list";
    case OrderedJson::value_t::object:
      return "an object";
    default:
      return "a number";
  }
}

OrderedJson::const_iterator find_any_case(const OrderedJson& object, const std::string& name) {
  auto found = object.find(name);
  for (auto it = object.begin(); found == object.end() && it != object.end(); ++it) {
    if (lower_case(it.key()) == lower_case(name)) {
      found = it;
    }
  }
  return found;
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  return out;
}

bool is_blank(const OrderedJson& value) {
  if (value.is_null()) {
    return true;
  }
  if (value.is_boolean()) {
    return !value.get<bool>();
  }
  if (value.is_string()) {
    return value.get_ref<const std::string&>().empty();
  }
  return (value.is_array() || value.is_object()) && value.empty();
}

RowFault wrong_type(const std::string& place, const OrderedJson& value, std::string_view expected) {
  return {.reason = "wrong type",
          .detail = fmt::format("{} is {}, expected {}", place, type_name(value), expected)};
}

RowFields::RowFields(const OrderedJson& object, const std::map<std::string, std::string>& columns) {
  // Renamed columns go first: they win over a column of the file that has our name already.
  std::uint64_t bit = 1;
  std::vector<std::string> taken;
  for (const auto& [file_name, our_name] : columns) {
    const auto found = find_any_case(object, file_name);
    if (found != object.end()) {
      columns_seen_ |= bit;
      taken.push_back(found.key());
      if (!found->is_null()) {
        entries_.emplace_back(lower_case(our_name), &found.value());
      }
    }
    bit <<= 1U;
  }
  // Exact lower-case names before the others, so that `find` prefers them.
  for (const bool exact : {true, false}) {
    for (auto it = object.begin(); it != object.end(); ++it) {
      const std::string lowered = lower_case(it.key());
      const bool renamed = std::find(taken.begin(), taken.end(), it.key()) != taken.end();
      if (!it->is_null() && !renamed && (lowered == it.key()) == exact) {
        entries_.emplace_back(lowered, &it.value());
      }
    }
  }
}

RowField RowFields::find(std::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) {
      return {.name = key, .value = value};
    }
  }
  return {};
}

RowFault RowFields::find_one(std::span<const std::string_view> names, std::string_view what,
                             RowField& out) const {
  out = find(names.front());
  if (out.value != nullptr) {
    return {};
  }
  for (const std::string_view name : names.subspan(1)) {
    RowField field = find(name);
    if (field.value == nullptr) {
      continue;
    }
    if (out.value != nullptr) {
      return {.reason = fmt::format("several columns for the {}", what),
              .detail = fmt::format("{} and {}; choose with --columns", out.name, field.name)};
    }
    out = std::move(field);
  }
  return {};
}

std::string RowFields::names() const {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(entries_.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + entries_[i].first.substr(0, 40);
  }
  if (entries_.empty()) {
    return "none";
  }
  return entries_.size() > kShown ? text + ", …" : text;
}

}  // namespace longhaul::data
