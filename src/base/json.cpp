#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul::base {
namespace {

/// Deepest nesting of brackets outside strings; counts what a recursive reader would have to
/// follow.
std::size_t nesting_depth(std::string_view text) {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

JsonFault fault_at(std::string_view text, std::size_t byte, std::string reason) {
  byte = std::min(byte, text.size());
  const auto before = text.substr(0, byte);
  const auto line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const auto start = before.rfind('\n');
  const std::size_t column = start == std::string_view::npos ? byte + 1 : byte - start;
  return {std::move(reason), line, column};
}

/// The library's message without its position prefix and id.
std::string short_reason(const std::string& message) {
  const auto at = message.find(": ", message.find("column"));
  return at == std::string::npos ? message : message.substr(at + 2);
}

template <typename Value>
std::optional<Value> try_parse(std::string_view text, JsonFault& fault) {
  if (nesting_depth(text) > kMaxJsonDepth) {
    fault = {fmt::format("nested deeper than {} levels", kMaxJsonDepth), 1, 1};
    return std::nullopt;
  }
  // The library takes a NUL byte for the end of its input and would ignore whatever follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    fault = fault_at(text, nul, "a NUL byte");
    return std::nullopt;
  }
  try {
    return Value::parse(text.begin(), text.end());
  } catch (const typename Value::parse_error& error) {
    fault = fault_at(text, error.byte == 0 ? 0 : error.byte - 1, short_reason(error.what()));
  } catch (const typename Value::exception& error) {
    fault = fault_at(text, 0, error.what());
  }
  return std::nullopt;
}

template <typename Value>
Value parse_or_throw(std::string_view text, const std::string& where) {
  JsonFault fault;
  auto value = try_parse<Value>(text, fault);
  if (!value) {
    throw UserError(Problem{.where = fmt::format("{}:{}", where, fault.line),
                            .what = "not valid JSON: " + fault.reason});
  }
  return *std::move(value);
}

}  // namespace

std::optional<Json> try_parse_json(std::string_view text, JsonFault& fault) {
  return try_parse<Json>(text, fault);
}

std::optional<OrderedJson> try_parse_ordered_json(std::string_view text, JsonFault& fault) {
  return try_parse<OrderedJson>(text, fault);
}

Json parse_json(std::string_view text, const std::string& where) {
  return parse_or_throw<Json>(text, where);
}

OrderedJson parse_ordered_json(std::string_view text, const std::string& where) {
  return parse_or_throw<OrderedJson>(text, where);
}

bool is_valid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) {
      return false;
    }
    std::uint32_t code = lead & (0xFFU >> (length + 1));
    for (std::size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      if ((byte & 0xC0U) != 0x80U) {
        return false;
      }
      code = (code << 6) | (byte & 0x3FU);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (overlong || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      return false;
    }
    i += length;
  }
  return true;
}

}  // namespace longhaul::base
