#include "text/json_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul::text {

JsonFields::JsonFields(const base::Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) {
    throw base::UserError(base::Problem{
        .where = where_, .what = "wrong type", .got = shown(object), .expected = "a JSON object"});
  }
}

void JsonFields::allow_only(std::initializer_list<std::string_view> known) const {
  for (const auto& item : object_->items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      throw base::UserError(
          base::Problem{.where = where_,
                        .what = fmt::format("unknown setting '{}'", item.key()),
                        .got = shown(item.value()),
                        .hint = "It could change the token ids, so it is not ignored"});
    }
  }
}

const base::Json* JsonFields::find(const char* key) const {
  const auto at = object_->find(key);
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

const base::Json& JsonFields::require(const char* key) const {
  const base::Json* const value = find(key);
  if (value == nullptr) {
    throw base::UserError(
        base::Problem{.where = where_, .what = fmt::format("'{}' is missing", key)});
  }
  return *value;
}

bool JsonFields::boolean(const char* key, std::optional<bool> absent) const {
  if (find(key) == nullptr && absent) {
    return *absent;
  }
  const base::Json& value = require(key);
  if (!value.is_boolean()) {
    wrong_type(key, "true or false");
  }
  return value.get<bool>();
}

std::string JsonFields::string(const char* key) const {
  const base::Json& value = require(key);
  if (!value.is_string()) {
    wrong_type(key, "a string");
  }
  return value.get<std::string>();
}

std::optional<std::string> JsonFields::optional_string(const char* key) const {
  if (find(key) == nullptr) {
    return std::nullopt;
  }
  return string(key);
}

std::int32_t JsonFields::id(const char* key, std::int32_t limit) const {
  const auto value = as_id(require(key), limit);
  if (!value) {
    wrong_type(key, fmt::format("a whole number from 0 to {}", limit - 1));
  }
  return *value;
}

void JsonFields::wrong_type(const char* key, std::string_view expected) const {
  throw base::UserError(base::Problem{.where = where_,
                                      .what = fmt::format("'{}' has a wrong value", key),
                                      .got = shown(*find(key)),
                                      .expected = std::string(expected)});
}

std::optional<std::int32_t> as_id(const base::Json& value, std::int32_t limit) {
  if (!value.is_number_integer()) {
    return std::nullopt;
  }
  const bool too_big =
      value.is_number_unsigned() && value.get<std::uint64_t>() >= static_cast<std::uint64_t>(limit);
  if (too_big || (!value.is_number_unsigned() && value.get<std::int64_t>() < 0) ||
      value.get<std::int64_t>() >= limit) {
    return std::nullopt;
  }
  return static_cast<std::int32_t>(value.get<std::int64_t>());
}

std::string shown(const base::Json& value) {
  constexpr std::size_t kLongest = 60;
  if (value.is_object() || value.is_array()) {
    return value.is_object() ? "an object" : "a list";
  }
  std::string text = value.dump(-1, ' ', true, base::Json::error_handler_t::replace);
  if (text.size() > kLongest) {
    text = text.substr(0, kLongest) + "...";
  }
  return text;
}

}  // namespace longhaul::text
