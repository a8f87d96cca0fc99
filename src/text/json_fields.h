// Typed look-ups in a parsed JSON object; every complaint names the place (`tokenizer.json:
// model.merges`).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace longhaul::text {

/// A JSON object and the words that name it in messages.
class JsonFields {
 public:
  /// UserError when `object` is not a JSON object.
  JsonFields(const base::Json& object, std::string where);

  /// UserError naming the first key that is not in `known`: a setting we would otherwise ignore.
  void allow_only(std::initializer_list<std::string_view> known) const;

  /// The value, or nullptr when it is absent or null.
  [[nodiscard]] const base::Json* find(const char* key) const;
  /// The value; UserError when it is absent or null.
  [[nodiscard]] const base::Json& require(const char* key) const;
  /// UserError when present with another type; absent only with a default.
  [[nodiscard]] bool boolean(const char* key, std::optional<bool> absent = std::nullopt) const;
  [[nodiscard]] std::string string(const char* key) const;
  [[nodiscard]] std::optional<std::string> optional_string(const char* key) const;
  /// A whole number in [0, limit).
  [[nodiscard]] std::int32_t id(const char* key, std::int32_t limit) const;

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const base::Json& object() const { return *object_; }

 private:
  [[noreturn]] void wrong_type(const char* key, std::string_view expected) const;

  const base::Json* object_;
  std::string where_;
};

/// A whole number in [0, limit) or nothing.
std::optional<std::int32_t> as_id(const base::Json& value, std::int32_t limit);

/// A value as short text for a message.
std::string shown(const base::Json& value);

}  // namespace longhaul::text
