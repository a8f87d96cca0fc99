// JSON through nlohmann/json with our limits: UTF-8 only, nesting ≤ 512, errors as UserError with
// file:line.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul::base {

/// Sorted keys, fast for big objects (a tokenizer's vocabulary).
using Json = nlohmann::json;
/// Keys in file order (option files, chat data, what we write).
using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxJsonDepth = 512;

/// Why a text is not acceptable JSON; `line` counts from 1.
struct JsonFault {
  std::string reason;
  std::size_t line = 0;
  std::size_t column = 0;
};

/// Parses, or says why not (malformed, invalid UTF-8, lone surrogate, nesting over 512, trailing
/// text). No throw.
std::optional<Json> try_parse_json(std::string_view text, JsonFault& fault);
std::optional<OrderedJson> try_parse_ordered_json(std::string_view text, JsonFault& fault);

/// Parses the text of file `where`; UserError `where:line`.
Json parse_json(std::string_view text, const std::string& where);
OrderedJson parse_ordered_json(std::string_view text, const std::string& where);

/// True when the bytes are well-formed UTF-8 (no surrogates, no overlong forms, ≤ U+10FFFF).
bool is_valid_utf8(std::string_view text);

}  // namespace longhaul::base
