#include "text/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"
#include "text/jinja_value.h"
#include "text/unicode.h"

namespace longhaul::text::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

/// Every kind of line end becomes \n, and one line end at the very end is dropped.
std::string normalized_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') {
      ++i;
    }
  }
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint point = code_point_at(text, at);
    if (!is_python_space(point.value)) {
      break;
    }
    at += point.size;
  }
  return at;
}

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = code_point_before(text, text.size());
    if (!is_python_space(point.value)) {
      break;
    }
    text.remove_suffix(point.size);
  }
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where)
      : source_(normalized_newlines(source)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const std::size_t open = find_open();
      const std::string_view text(source_.data() + at_, open - at_);
      if (open == source_.size()) {
        push(TokenKind::kText, std::string(text));
        break;
      }
      const char kind = source_[open + 1];
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      const std::string_view kept = text_before_tag(text, kind, sign);
      if (!kept.empty()) {
        push(TokenKind::kText, std::string(kept));
      }
      advance_to(open + (has_sign ? 3 : 2));
      tag(kind);
    }
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance_to(std::size_t to) {
    line_ += static_cast<std::size_t>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                                 source_.begin() + static_cast<std::ptrdiff_t>(to),
                                                 '\n'));
    at_ = to;
  }

  [[nodiscard]] std::size_t find_open() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      const char next = source_[i + 1];
      if (source_[i] == '{' && (next == '{' || next == '%' || next == '#')) {
        return i;
      }
    }
    return source_.size();
  }

  [[nodiscard]] bool starts_with(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }

  /// The text in front of a tag after `-` or lstrip_blocks took white space away.
  [[nodiscard]] std::string_view text_before_tag(std::string_view text, char kind,
                                                 char sign) const {
    if (sign == '-') {
      return without_trailing_space(text);
    }
    if (sign == '+' || kind == '{') {
      return text;
    }
    const std::size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) {
      return text;
    }
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    return skip_space(text, begin) == text.size() ? text.substr(0, begin) : text;
  }

  void tag(char kind) {
    if (kind == '#') {
      comment();
    } else if (kind == '%' && raw_block()) {
      return;
    } else {
      push(kind == '{' ? TokenKind::kOutputOpen : TokenKind::kBlockOpen, "");
      expression(kind == '{' ? "}}" : "%}", kind == '%');
      tokens_.back().kind = kind == '{' ? TokenKind::kOutputClose : TokenKind::kBlockClose;
    }
  }

  /// Takes the end of a tag at the cursor (`%}`, `-%}`, `+%}`) and the white space that goes with
  /// it.
  bool close(std::string_view end, bool is_block) {
    const std::size_t begin = at_;
    const bool minus = starts_with("-" + std::string(end));
    const bool plus = is_block && starts_with("+" + std::string(end));
    if (!minus && !plus && !starts_with(end)) {
      return false;
    }
    std::size_t to = at_ + end.size() + (minus || plus ? 1 : 0);
    if (minus) {
      to = skip_space(source_, to);
    } else if (is_block && !plus && to < source_.size() && source_[to] == '\n') {
      ++to;
    }
    advance_to(to);
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
    return true;
  }

  void comment() {
    const std::size_t start_line = line_;
    while (at_ < source_.size()) {
      if (close("#}", true)) {
        return;
      }
      advance_to(at_ + 1);
    }
    fail_at(where_, start_line, "comment without an end");
  }

  /// `{% raw %} … {% endraw %}`: the text between comes out as it is.
  bool raw_block() {
    const std::size_t name = skip_space(source_, at_);
    if (source_.compare(name, 3, "raw") != 0) {
      return false;
    }
    const std::size_t begin = at_;
    const std::size_t start_line = line_;
    advance_to(skip_space(source_, name + 3));
    // The start of a raw block keeps the line end that follows it.
    if (starts_with("-%}")) {
      advance_to(skip_space(source_, at_ + 3));
    } else if (starts_with("%}")) {
      advance_to(at_ + 2);
    } else {
      at_ = begin;
      line_ = start_line;
      return false;
    }
    line_starting_ = source_[at_ - 1] == '\n';
    for (std::size_t open = source_.find("{%", at_); open != std::string::npos;
         open = source_.find("{%", open + 1)) {
      std::size_t to = open + 2;
      const char sign = to < source_.size() ? source_[to] : '\0';
      to += sign == '-' || sign == '+' ? 1 : 0;
      to = skip_space(source_, to);
      if (source_.compare(to, 6, "endraw") != 0) {
        continue;
      }
      const std::string_view text(source_.data() + at_, open - at_);
      push(TokenKind::kText, std::string(text_before_tag(text, '%', sign)));
      advance_to(skip_space(source_, to + 6));
      if (!close("%}", true)) {
        fail_at(where_, line_, "malformed endraw");
      }
      return true;
    }
    fail_at(where_, start_line, "raw block without an end");
  }

  void expression(std::string_view end, bool is_block) {
    const std::size_t start_line = line_;
    std::string brackets;
    while (at_ < source_.size()) {
      const std::size_t next = skip_space(source_, at_);
      if (next != at_) {
        advance_to(next);
        continue;
      }
      if (brackets.empty() && close(end, is_block)) {
        push(TokenKind::kEnd, "");  // tag() gives it its kind
        return;
      }
      token(brackets);
    }
    fail_at(where_, start_line, fmt::format("tag without its end {}", end));
  }

  void token(std::string& brackets) {
    const char c = source_[at_];
    if (is_name_start(c)) {
      std::size_t to = at_;
      while (to < source_.size() && is_name_part(source_[to])) {
        ++to;
      }
      push(TokenKind::kName, source_.substr(at_, to - at_));
      advance_to(to);
    } else if (is_digit(c)) {
      number();
    } else if (c == '"' || c == '\'') {
      string_literal(c);
    } else {
      operator_token(brackets);
    }
  }

  void number() {
    std::size_t to = at_;
    bool is_float = false;
    const auto digits = [&] {
      while (to < source_.size() &&
             (is_digit(source_[to]) ||
              (source_[to] == '_' && to + 1 < source_.size() && is_digit(source_[to + 1])))) {
        ++to;
      }
    };
    digits();
    if (to + 1 < source_.size() && source_[to] == '.' && is_digit(source_[to + 1])) {
      is_float = true;
      ++to;
      digits();
    }
    if (to < source_.size() && (source_[to] == 'e' || source_[to] == 'E')) {
      const bool sign =
          to + 1 < source_.size() && (source_[to + 1] == '-' || source_[to + 1] == '+');
      const std::size_t exponent = to + (sign ? 2 : 1);
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        is_float = true;
        to = exponent;
        digits();
      }
    }
    std::string text = source_.substr(at_, to - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    const bool zero_led = !is_float && text.size() > 1 && text[0] == '0' &&
                          text.find_first_not_of('0') != std::string::npos;
    if (zero_led || (to < source_.size() && is_name_part(source_[to]))) {
      fail_at(where_, line_, fmt::format("number '{}' in a form that is not supported", text));
    }
    push(is_float ? TokenKind::kFloat : TokenKind::kInteger, text);
    advance_to(to);
  }

  void string_literal(char quote) {
    std::string value;
    std::size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = escape(i + 1, value);
      } else {
        value += source_[i++];
      }
    }
    if (i >= source_.size()) {
      fail_at(where_, line_, "string without an end");
    }
    push(TokenKind::kString, value);
    advance_to(i + 1);
  }

  /// Resolves the escape whose letter stands at `i` as Python does; returns the place after it.
  std::size_t escape(std::size_t i, std::string& value) {
    const char c = source_[i];
    constexpr std::string_view kLetters = "ntrabfv0\\'\"\n";
    constexpr std::string_view kValues("\n\t\r\a\b\f\v\0\\'\"", 11);
    const bool octal =
        is_digit(c) && (c != '0' || (i + 1 < source_.size() && is_digit(source_[i + 1])));
    if (octal || c == 'N') {
      fail_at(where_, line_, fmt::format("string escape \\{} is not supported", c));
    }
    if (const std::size_t index = kLetters.find(c); index != std::string_view::npos) {
      if (index < kValues.size()) {
        value += kValues[index];
      }
      return i + 1;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      return hexadecimal_escape(i, value);
    }
    value += '\\';
    return i;
  }

  std::size_t hexadecimal_escape(std::size_t i, std::string& value) {
    const std::size_t digits = source_[i] == 'x' ? 2 : (source_[i] == 'u' ? 4 : 8);
    const std::string text = source_.substr(i + 1, digits);
    const bool valid = text.size() == digits &&
                       text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    const unsigned long code = valid ? std::stoul(text, nullptr, 16) : 0x110000UL;  // NOLINT
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail_at(where_, line_, "malformed string escape");
    }
    append_utf8(value, static_cast<char32_t>(code));
    return i + 1 + digits;
  }

  void operator_token(std::string& brackets) {
    constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto* const at = std::find_if(kOperators.begin(), kOperators.end(),
                                        [this](auto text) { return starts_with(text); });
    if (at == kOperators.end()) {
      fail_at(where_, line_,
              fmt::format("unexpected character '{}'",
                          source_.substr(at_, code_point_at(source_, at_).size)));
    }
    const char c = at->front();
    if (c == '(' || c == '[' || c == '{') {
      brackets += c == '(' ? ')' : (c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) {
        fail_at(where_, line_, fmt::format("unexpected '{}'", c));
      }
      brackets.pop_back();
    }
    push(TokenKind::kOperator, std::string(*at));
    advance_to(at_ + at->size());
  }

  std::string source_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source, const std::string& where) {
  return Lexer(source, where).run();
}

void fail_at(const std::string& where, std::size_t line, const std::string& what) {
  throw base::UserError(base::Problem{.where = fmt::format("{}:{}", where, line), .what = what});
}

}  // namespace longhaul::text::jinja
