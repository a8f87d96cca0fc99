#include "text/jinja_sequences.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "text/unicode.h"

namespace longhaul::text::jinja {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20U;

char ascii_case(char c, char first, char last) {
  if (static_cast<unsigned char>(c) >= 0x80) {
    throw Fault{"changing the case of text beyond ASCII is not supported"};
  }
  return c >= first && c <= last ? static_cast<char>(c ^ 0x20) : c;
}

}  // namespace

std::string strip(std::string_view text, Ends ends, const std::optional<std::string>& set) {
  std::vector<std::string> members;
  if (set) {
    members = characters(*set);
  }
  const auto goes = [&](const CodePoint& point, std::size_t at) {
    if (!set) {
      return is_python_space(point.value);
    }
    return std::find(members.begin(), members.end(), text.substr(at, point.size)) != members.end();
  };
  while (ends != Ends::kRight && !text.empty()) {
    const CodePoint point = code_point_at(text, 0);
    if (!goes(point, 0)) {
      break;
    }
    text.remove_prefix(point.size);
  }
  while (ends != Ends::kLeft && !text.empty()) {
    const CodePoint point = code_point_before(text, text.size());
    if (!goes(point, text.size() - point.size)) {
      break;
    }
    text.remove_suffix(point.size);
  }
  return std::string(text);
}

std::string to_upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return ascii_case(c, 'a', 'z'); });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return ascii_case(c, 'A', 'Z'); });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out = to_lower(text);
  if (!out.empty()) {
    out[0] = ascii_case(out[0], 'a', 'z');
  }
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        std::int64_t count) {
  std::string out;
  if (from.empty()) {
    throw Fault{"replacing an empty text is not supported"};
  }
  for (; count != 0; --count) {
    const std::size_t at = text.find(from);
    if (at == std::string_view::npos) {
      break;
    }
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
    if (out.size() > kMaxTextBytes) {
      throw Fault{"a text grows too large"};
    }
  }
  out += text;
  return out;
}

std::optional<Value> element_at(const Value& sequence, std::int64_t index) {
  const auto at = [index](const auto& items) -> std::optional<std::size_t> {
    const auto size = static_cast<std::int64_t>(items.size());
    const std::int64_t place = index < 0 ? index + size : index;
    return place >= 0 && place < size ? std::optional(static_cast<std::size_t>(place))
                                      : std::nullopt;
  };
  if (const List* const list = sequence.as_list()) {
    const auto place = at(list->items);
    return place ? std::optional(list->items[*place]) : std::nullopt;
  }
  if (const std::string* const text = sequence.as_text()) {
    const auto parts = characters(*text);
    const auto place = at(parts);
    return place ? std::optional(Value::text(parts[*place])) : std::nullopt;
  }
  return std::nullopt;
}

Value slice(const Value& sequence, std::optional<std::int64_t> start,
            std::optional<std::int64_t> stop, std::optional<std::int64_t> step) {
  if (sequence.as_list() == nullptr && sequence.as_text() == nullptr) {
    throw Fault{"slice of a value of type " + sequence.type_name()};
  }
  const std::vector<Value> items = sequence.elements();
  const auto size = static_cast<std::int64_t>(items.size());
  const std::int64_t by = step.value_or(1);
  if (by == 0) {
    throw Fault{"slice step is 0"};
  }
  // Python's bounds: a backward slice runs over [-1, size - 1], a forward one over [0, size].
  const std::int64_t low = by > 0 ? 0 : -1;
  const std::int64_t high = by > 0 ? size : size - 1;
  const auto bounded = [&](std::int64_t index) {
    return std::clamp(index < 0 ? index + size : index, low, high);
  };
  const std::int64_t first = start ? bounded(*start) : (by > 0 ? low : high);
  const std::int64_t last = stop ? bounded(*stop) : (by > 0 ? high : low);
  std::vector<Value> part;
  for (std::int64_t i = first; by > 0 ? i < last : i > last;) {
    part.push_back(items[static_cast<std::size_t>(i)]);
    if (by > size || by < -size) {
      break;
    }
    i += by;
  }
  if (const List* const list = sequence.as_list()) {
    return Value::list(std::move(part), list->is_tuple);
  }
  std::string text;
  for (const Value& character : part) {
    text += *character.as_text();
  }
  return Value::text(std::move(text));
}

}  // namespace longhaul::text::jinja
