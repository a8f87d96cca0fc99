#include "config/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace longhaul::config {
namespace {

constexpr std::size_t kLongestQuote = 80;

/// Where the scanner is inside nested brackets: the key that led here, and whether a key comes
/// next.
struct Level {
  bool is_object = false;
  bool expects_key = false;
  std::string key{};
};

/// End of the string literal that starts at `begin` (its opening quote).
std::size_t string_end(std::string_view text, std::size_t begin) {
  std::size_t i = begin + 1;
  while (i < text.size() && text[i] != '"') {
    i += text[i] == '\\' ? 2U : 1U;
  }
  return i;
}

void note_key(std::vector<Level>& levels, std::string key, std::size_t line,
              std::map<std::string, std::size_t>& lines) {
  levels.back().key = std::move(key);
  levels.back().expects_key = false;
  if (levels.size() == 1) {
    lines[levels.back().key] = line;
  } else if (levels.size() == 2 && levels.front().is_object) {
    lines[levels.front().key + "." + levels.back().key] = line;
  }
}

}  // namespace

std::map<std::string, std::size_t> key_lines(std::string_view text) {
  std::map<std::string, std::size_t> lines;
  std::vector<Level> levels;
  std::size_t line = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
    } else if (c == '{' || c == '[') {
      levels.push_back({c == '{', c == '{'});
    } else if ((c == '}' || c == ']') && !levels.empty()) {
      levels.pop_back();
    } else if (c == ',' && !levels.empty()) {
      levels.back().expects_key = levels.back().is_object;
    } else if (c == '"') {
      const std::size_t end = string_end(text, i);
      if (!levels.empty() && levels.back().expects_key) {
        note_key(levels, std::string(text.substr(i + 1, end - i - 1)), line, lines);
      }
      i = end;
    }
  }
  return lines;
}

std::string short_dump(const base::Json& value) {
  std::string text = value.dump(-1, ' ', false, base::Json::error_handler_t::replace);
  if (text.size() > kLongestQuote) {
    std::size_t cut = kLongestQuote;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) {
      --cut;  // not inside a UTF-8 sequence
    }
    text = text.substr(0, cut) + "…";
  }
  return text;
}

JsonFields::JsonFields(const base::Json& object, std::string where,
                       const std::map<std::string, std::size_t>& lines,
                       std::vector<base::Problem>& problems, std::string prefix)
    : object_(object),
      where_(std::move(where)),
      lines_(lines),
      problems_(problems),
      prefix_(std::move(prefix)) {}

bool JsonFields::has(const std::string& key) const { return !at(key).is_null(); }

const base::Json& JsonFields::at(const std::string& key) const {
  static const base::Json kNull;
  const auto found = object_.find(key);
  return found == object_.end() ? kNull : *found;
}

std::optional<std::int64_t> JsonFields::integer(const std::string& key, std::int64_t least,
                                                std::int64_t most) const {
  if (!has(key)) {
    return std::nullopt;
  }
  const base::Json& value = at(key);
  // Unsigned values above the signed range would wrap around.
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (fits) {
    const auto number = value.get<std::int64_t>();
    if (number >= least && number <= most) {
      return number;
    }
  }
  fault(key, "impossible value", fmt::format("an integer from {} to {}", least, most));
  return std::nullopt;
}

std::int64_t JsonFields::required_integer(const std::string& key, std::int64_t least,
                                          std::int64_t most) const {
  if (!has(key)) {
    fault(key, "missing", fmt::format("an integer from {} to {}", least, most));
    return 0;
  }
  return integer(key, least, most).value_or(0);
}

std::optional<double> JsonFields::number(const std::string& key, double least, double most) const {
  if (!has(key)) {
    return std::nullopt;
  }
  const base::Json& value = at(key);
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (std::isfinite(number) && number >= least && number <= most) {
      return number;
    }
  }
  fault(key, "impossible value", fmt::format("a number from {} to {}", least, most));
  return std::nullopt;
}

std::optional<bool> JsonFields::boolean(const std::string& key) const {
  if (!has(key)) {
    return std::nullopt;
  }
  if (at(key).is_boolean()) {
    return at(key).get<bool>();
  }
  fault(key, "impossible value", "true or false");
  return std::nullopt;
}

std::optional<std::string> JsonFields::text(const std::string& key) const {
  if (!has(key)) {
    return std::nullopt;
  }
  if (at(key).is_string()) {
    return at(key).get<std::string>();
  }
  fault(key, "impossible value", "a string");
  return std::nullopt;
}

JsonFields JsonFields::child(const std::string& key) const {
  return {at(key), where_, lines_, problems_, prefix_ + key + "."};
}

void JsonFields::fault(const std::string& key, std::string what, std::string expected,
                       std::string hint) const {
  problems_.push_back({.where = place(key),
                       .what = std::move(what),
                       .got = is_present(key) ? short_dump(at(key)) : std::string(),
                       .expected = std::move(expected),
                       .hint = std::move(hint)});
}

std::string JsonFields::place(const std::string& key) const {
  const std::string path = prefix_ + key;
  const auto line = lines_.find(path);
  return line == lines_.end() ? fmt::format("{}: {}", where_, path)
                              : fmt::format("{}:{}: {}", where_, line->second, path);
}

}  // namespace longhaul::config
