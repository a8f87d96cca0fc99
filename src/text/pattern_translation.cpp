#include "text/pattern_translation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/error.h"
#include "text/unicode.h"

namespace longhaul::text {
namespace {

constexpr std::string_view kWhiteSpaceMembers =
    R"(\x{09}-\x{0d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

constexpr std::array<std::string_view, 25> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N",  "Nd", "Nl", "No", "P", "Pc",
    "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z"};

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string hex_escape(char32_t value) {
  return fmt::format("\\x{{{:x}}}", static_cast<unsigned>(value));
}

/// One pass over the expression; `out_` is the translation so far.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      step();
    }
    if (!groups_.empty()) {
      refuse("an open group", pattern_);
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view construct, std::string_view text) const {
    throw base::UserError(
        {.where = where_,
         .what = fmt::format("regular expression uses {} at byte {}, which is not supported",
                             construct, at_),
         .got = std::string(text),
         .hint = "Supported: literals, classes, \\s \\d \\p{...}, groups, look-around, "
                 "alternatives and quantifiers"});
  }

  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  [[nodiscard]] bool starts_with(std::string_view text) const {
    return pattern_.substr(at_).starts_with(text);
  }
  [[nodiscard]] bool caseless() const { return !groups_.empty() && groups_.back(); }

  void step() {
    const char c = peek();
    switch (c) {
      case '\\':
        escape();
        return;
      case '[':
        char_class();
        return;
      case '(':
        open_group();
        return;
      case ')':
        close_group();
        return;
      case '|':
        out_ += '|';
        ++at_;
        atom_ = false;
        previous_caseless_ = '\0';
        return;
      case '.':
        whole_class("[^\\x{0a}]");
        ++at_;
        return;
      case '^':
      case '$':
        out_ += c;
        ++at_;
        atom_ = false;
        return;
      case '?':
      case '*':
      case '+':
      case '{':
        quantifier();
        return;
      default:
        literal();
    }
  }

  void literal() {
    const CodePoint point = code_point_at(pattern_, at_);
    at_ += point.size;
    add_literal(point.value);
  }

  void add_literal(char32_t value) {
    if (caseless()) {
      check_caseless_literal(value);
    }
    out_ += hex_escape(value);
    atom_ = true;
  }

  /// Beyond ASCII, and for letter pairs that have a ligature, the two libraries fold case
  /// differently.
  void check_caseless_literal(char32_t value) {
    if (value >= 0x80) {
      refuse("a non-ASCII letter in a case-insensitive group", pattern_);
    }
    const char lower = static_cast<char>(value | 0x20);
    const std::string pair = {previous_caseless_, lower};
    if (pair == "ff" || pair == "fi" || pair == "fl" || pair == "ss" || pair == "st") {
      refuse("a letter pair with a ligature in a case-insensitive group", pattern_);
    }
    previous_caseless_ = lower;
  }

  void whole_class(std::string_view text) {
    if (caseless()) {
      refuse("a character class in a case-insensitive group", pattern_);
    }
    out_ += text;
    atom_ = true;
  }

  /// A single character written with a backslash; nothing when the escape is a class or unknown.
  std::optional<char32_t> escaped_character() {
    const char c = peek(1);
    constexpr std::string_view kNames = "nrtfvae";
    constexpr std::array<char32_t, 7> kValues = {'\n', '\r', '\t', '\f', 0x0B, 0x07, 0x1B};
    if (const auto index = kNames.find(c); c != '\0' && index != std::string_view::npos) {
      at_ += 2;
      return kValues.at(index);
    }
    if (c == 'x' || c == 'u') {
      return hexadecimal_character();
    }
    const bool plain = at_ + 1 < pattern_.size() && static_cast<unsigned char>(c) < 0x80 &&
                       !is_ascii_letter(c) && !is_ascii_digit(c);
    if (!plain) {
      return std::nullopt;
    }
    at_ += 2;
    return static_cast<char32_t>(c);
  }

  std::optional<char32_t> hexadecimal_character() {
    const bool braces = peek(1) == 'x' && peek(2) == '{';
    const std::size_t begin = at_ + (braces ? 3 : 2);
    const std::size_t limit = braces ? 6 : (peek(1) == 'u' ? 4 : 2);
    char32_t value = 0;
    std::size_t end = begin;
    while (end < pattern_.size() && end - begin < limit) {
      const char c = pattern_[end];
      const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!is_ascii_digit(c) && !letter) {
        break;
      }
      value =
          value * 16 + static_cast<char32_t>(is_ascii_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
      ++end;
    }
    const bool closed = !braces || (end < pattern_.size() && pattern_[end] == '}');
    const bool exact = braces ? end > begin : end - begin == limit;
    // `\x80` and above without braces is a byte of a longer character in Oniguruma.
    const bool is_byte = !braces && limit == 2 && value >= 0x80;
    if (!closed || !exact || is_byte || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      refuse("a malformed hexadecimal escape", pattern_);
    }
    at_ = end + (braces ? 1 : 0);
    return value;
  }

  /// The members of `\s`, `\d` or `\p{X}` at the cursor and whether they are negated.
  struct Members {
    std::string text;
    bool negated = false;
  };

  Members class_escape() {
    const char c = peek(1);
    if (c == 's' || c == 'S') {
      at_ += 2;
      return {std::string(kWhiteSpaceMembers), c == 'S'};
    }
    if (c == 'd' || c == 'D') {
      at_ += 2;
      return {category_members("Nd"), c == 'D'};
    }
    if ((c == 'p' || c == 'P') && peek(2) == '{') {
      const std::size_t end = pattern_.find('}', at_);
      if (end == std::string_view::npos) {
        refuse("a malformed property", pattern_);
      }
      std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
      bool negated = c == 'P';
      if (name.starts_with('^')) {
        negated = !negated;
        name.remove_prefix(1);
      }
      if (std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end()) {
        refuse(fmt::format("the property \\p{{{}}}", name), pattern_);
      }
      std::string members = category_members(name);
      at_ = end + 1;
      return {std::move(members), negated};
    }
    refuse(fmt::format("the escape {}", pattern_.substr(at_, 2)), pattern_);
  }

  void escape() {
    if (const auto character = escaped_character()) {
      add_literal(*character);
      return;
    }
    const Members members = class_escape();
    whole_class(fmt::format("[{}{}]", members.negated ? "^" : "", members.text));
  }

  /// One character of a class (literal or escaped); nothing when a class escape stands there.
  std::optional<char32_t> class_character() {
    if (peek() == '\\') {
      return escaped_character();
    }
    const CodePoint point = code_point_at(pattern_, at_);
    at_ += point.size;
    return point.value;
  }

  void char_class() {
    const std::size_t begin = at_;
    ++at_;
    std::string text = "[";
    if (peek() == '^') {
      text += '^';
      ++at_;
    }
    if (peek() == ']') {
      refuse("a class that starts with ]", pattern_);
    }
    while (peek() != ']') {
      if (at_ >= pattern_.size()) {
        at_ = begin;
        refuse("an open class", pattern_);
      }
      if (peek() == '[' || starts_with("&&")) {
        refuse("a class inside a class", pattern_);
      }
      text += class_member();
    }
    ++at_;
    whole_class(text + "]");
  }

  std::string class_member() {
    const auto first = class_character();
    if (!first) {
      const Members members = class_escape();
      if (members.negated) {
        refuse("a negated escape inside a class", pattern_);
      }
      if (peek() == '-' && peek(1) != ']') {
        refuse("a range that starts with a class", pattern_);
      }
      return members.text;
    }
    if (peek() != '-' || peek(1) == ']' || at_ + 1 >= pattern_.size()) {
      return hex_escape(*first);
    }
    ++at_;
    if (peek() == '[') {
      refuse("a class inside a class", pattern_);
    }
    const auto last = class_character();
    if (!last || *last < *first) {
      refuse("a malformed range", pattern_);
    }
    return hex_escape(*first) + "-" + hex_escape(*last);
  }

  void open_group() {
    constexpr std::array<std::string_view, 6> kOpeners = {"(?:",  "(?=",  "(?!",
                                                          "(?<=", "(?<!", "(?>"};
    bool group_caseless = caseless();
    if (starts_with("(?i:")) {
      out_ += "(?i:";
      at_ += 4;
      group_caseless = true;
      previous_caseless_ = '\0';
    } else if (peek(1) != '?') {
      out_ += "(?:";
      ++at_;
    } else {
      const auto* const opener = std::find_if(kOpeners.begin(), kOpeners.end(),
                                              [this](auto text) { return starts_with(text); });
      if (opener == kOpeners.end()) {
        refuse("an unknown group", pattern_);
      }
      out_ += *opener;
      at_ += opener->size();
    }
    groups_.push_back(group_caseless);
    if (groups_.size() > kMaxGroups) {
      refuse("too many nested groups", pattern_);
    }
    atom_ = false;
  }

  void close_group() {
    if (groups_.empty()) {
      refuse("a ) without (", pattern_);
    }
    groups_.pop_back();
    out_ += ')';
    ++at_;
    atom_ = true;
  }

  void quantifier() {
    if (!atom_) {
      refuse("a quantifier without anything before it", pattern_);
    }
    previous_caseless_ = '\0';
    atom_ = false;
    if (peek() != '{') {
      out_ += peek();
      ++at_;
      if (peek() == '?' || peek() == '+') {
        out_ += peek();
        ++at_;
      }
      return;
    }
    const std::size_t end = pattern_.find('}', at_);
    const std::string_view inside = end == std::string_view::npos
                                        ? std::string_view()
                                        : pattern_.substr(at_ + 1, end - at_ - 1);
    out_ += '{' + interval(inside) + '}';
    at_ = end + 1;
    if (peek() == '?' || peek() == '+' || peek() == '*' || peek() == '{') {
      refuse("a quantifier after {...}", pattern_);
    }
  }

  /// `n`, `n,`, `,m` or `n,m` in PCRE2's spelling.
  std::string interval(std::string_view inside) {
    const std::size_t comma = inside.find(',');
    const std::string_view low = inside.substr(0, comma);
    const std::string_view high =
        comma == std::string_view::npos ? std::string_view() : inside.substr(comma + 1);
    const auto is_number = [](std::string_view text) {
      return text.size() <= 4 && std::all_of(text.begin(), text.end(), is_ascii_digit);
    };
    if (!is_number(low) || !is_number(high) || (low.empty() && high.empty())) {
      refuse("a malformed {...}", pattern_);
    }
    std::string text = low.empty() ? "0" : std::string(low);
    if (comma != std::string_view::npos) {
      text += "," + std::string(high);
    }
    return text;
  }

  static constexpr std::size_t kMaxGroups = 100;

  std::string_view pattern_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::string out_;
  std::vector<bool> groups_;  // one entry per open group: case-insensitive?
  char previous_caseless_ = '\0';
  bool atom_ = false;  // something that a quantifier can follow
};

}  // namespace

std::string category_members(std::string_view category) {
  std::string members = fmt::format("\\p{{{}}}", category);
  for (const AssignedRange& range : assigned_ranges()) {
    if (std::string_view(range.category).starts_with(category)) {
      members += hex_escape(range.first) + "-" + hex_escape(range.last);
    }
  }
  return members;
}

std::string word_character_members() {
  std::string members = R"(\p{Alphabetic}\x{200c}\x{200d})";
  for (const std::string_view category : {"L", "M", "Nd", "Nl", "Pc"}) {
    members += category_members(category);
  }
  return members;
}

std::string translate_pattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace longhaul::text
