#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace longhaul::base {
namespace {

/// Bytes of the character that begins `text`; 0 when they are not UTF-8.
std::size_t character_bytes(std::string_view text) {
  for (std::size_t count = 1; count <= std::min<std::size_t>(4, text.size()); ++count) {
    if (is_valid_utf8(text.substr(0, count))) {
      return count;
    }
  }
  return 0;
}

/// Foreign text may hold line breaks, terminal controls and bytes that are no text; a problem stays
/// one visible line of UTF-8.
std::string one_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    const std::size_t count = byte < 0x80 ? 1 : character_bytes(text.substr(at));
    if (count > 1) {
      out += text.substr(at, count);
      at += count - 1;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string join_lines(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    if (!text.empty()) {
      text += '\n';
    }
    text += problem.line();
  }
  return text;
}

}  // namespace

std::string Problem::line() const {
  std::string text;
  if (!where.empty()) {
    text += where + ": ";
  }
  text += what;
  if (!got.empty() && !expected.empty()) {
    text += fmt::format(" (got {}, expected {})", got, expected);
  } else if (!got.empty()) {
    text += fmt::format(" (got {})", got);
  } else if (!expected.empty()) {
    text += fmt::format(" (expected {})", expected);
  }
  if (!hint.empty()) {
    text += ". " + hint;
  }
  return one_line(text);
}

Error::Error(std::vector<Problem> problems)
    : std::runtime_error(join_lines(problems)), problems_(std::move(problems)) {}

void fail_assertion(std::string_view condition, std::string_view message,
                    std::source_location location) {
  std::string_view file = location.file_name();
  if (const auto at = file.rfind("src/"); at != std::string_view::npos) {
    file = file.substr(at + 4);
  }
  throw InternalError({.where = fmt::format("{}:{}", file, location.line()),
                       .what = fmt::format("internal error: {} ({})", message, condition),
                       .hint = "Please report this line with the command that caused it"});
}

}  // namespace longhaul::base
