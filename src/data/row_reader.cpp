#include "data/row_reader.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"

namespace longhaul::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kSpace = " \t\r\n";

std::size_t skip_space(std::string_view text, std::size_t at) {
  const std::size_t found = text.find_first_not_of(kSpace, at);
  return found == std::string_view::npos ? text.size() : found;
}

std::size_t start_of_text(std::string_view text) {
  return text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
}

/// Walks through the elements of one array and counts lines on the way.
class ArrayScanner {
 public:
  ArrayScanner(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  std::vector<RowRef> scan() {
    to_next_text(start_of_text(text_));
    ++at_;  // the opening bracket
    std::vector<RowRef> rows;
    to_next_text(at_);
    if (peek() == ']') {
      finish();
      return rows;
    }
    while (true) {
      rows.push_back(read_element());
      const char end = peek();
      ++at_;
      to_next_text(at_);
      if (end == ']') {
        --at_;
        finish();
        return rows;
      }
    }
  }

 private:
  [[nodiscard]] char peek() const {
    if (at_ >= text_.size()) {
      fail("the array is not closed");
    }
    return text_[at_];
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw base::UserError(base::Problem{
        .where = fmt::format("{}:{}", where_, line_),
        .what = "not valid JSON: " + reason,
        .hint = "The file starts as one JSON array, so every row behind this place is lost"});
  }

  void to_next_text(std::size_t from) {
    const std::size_t next = skip_space(text_, from);
    count_lines(from, next);
    at_ = next;
  }

  void count_lines(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      line_ += text_[i] == '\n' ? 1U : 0U;
    }
  }

  /// Leaves at_ on the ',' or ']' behind the element.
  RowRef read_element() {
    const std::size_t begin = at_;
    RowRef row{.offset = begin, .bytes = 0, .line = line_};
    std::size_t end = find_end(begin);
    const std::size_t stop = end;
    while (end > begin && kSpace.find(text_[end - 1]) != std::string_view::npos) {
      --end;
    }
    if (end == begin) {
      fail("an array element is missing");
    }
    row.bytes = end - begin;
    count_lines(begin, stop);
    at_ = stop;
    return row;
  }

  [[nodiscard]] std::size_t find_end(std::size_t at) const {
    std::size_t depth = 0;
    bool in_string = false;
    for (; at < text_.size(); ++at) {
      const char c = text_[at];
      if (in_string) {
        if (c == '\\') {
          ++at;
        } else if (c == '"') {
          in_string = false;
        }
        continue;
      }
      if (c == '"') {
        in_string = true;
      } else if (c == '[' || c == '{') {
        ++depth;
      } else if (depth == 0 && (c == ',' || c == ']')) {
        return at;
      } else if (c == ']' || c == '}') {
        if (depth == 0) {
          fail("a bracket closes nothing");
        }
        --depth;
      }
    }
    fail("the array is not closed");
  }

  void finish() {
    ++at_;
    const std::size_t rest = skip_space(text_, at_);
    if (rest != text_.size()) {
      count_lines(at_, rest);
      fail("text behind the end of the array");
    }
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::uint64_t line_ = 1;
};

/// The first line that is not blank is a whole array and more lines follow: rows of a wrong type,
/// one per line.
bool is_whole_array_in_first_line(std::string_view text, std::size_t at) {
  const std::size_t end = text.find('\n', at);
  if (end == std::string_view::npos || skip_space(text, end) == text.size()) {
    return false;
  }
  base::JsonFault fault;
  return base::try_parse_ordered_json(text.substr(at, end - at), fault).has_value();
}

void refuse_utf16(std::string_view text, const std::string& where) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    throw base::UserError(base::Problem{.where = where,
                                        .what = "not UTF-8 text",
                                        .got = "UTF-16 or UTF-32",
                                        .expected = "UTF-8",
                                        .hint = "Save the file as UTF-8"});
  }
}

}  // namespace

std::vector<RowRef> split_lines(std::string_view text) {
  std::vector<RowRef> rows;
  std::size_t at = start_of_text(text);
  for (std::uint64_t line = 1; at < text.size(); ++line) {
    std::size_t end = text.find('\n', at);
    const std::size_t next = end == std::string_view::npos ? text.size() : end + 1;
    end = end == std::string_view::npos ? text.size() : end;
    if (end > at && text[end - 1] == '\r') {
      --end;
    }
    const std::string_view content = text.substr(at, end - at);
    if (content.find_first_not_of(kSpace) != std::string_view::npos) {
      rows.push_back({.offset = at, .bytes = end - at, .line = line});
    }
    at = next;
  }
  return rows;
}

std::vector<RowRef> split_array(std::string_view text, const std::string& where) {
  return ArrayScanner(text, where).scan();
}

bool is_json_array(std::string_view text, bool is_jsonl) {
  const std::size_t at = skip_space(text, start_of_text(text));
  if (at >= text.size() || text[at] != '[') {
    return false;
  }
  if (!is_jsonl) {
    return true;
  }
  const std::size_t inner = skip_space(text, at + 1);
  const bool opens = inner < text.size() && (text[inner] == '{' || text[inner] == ']');
  return opens && !is_whole_array_in_first_line(text, at);
}

RowFile::RowFile(const std::filesystem::path& path) : file_(path) {
  const std::string_view text = file_.text();
  refuse_utf16(text, path.string());
  is_array_ = is_json_array(text, path.extension() == ".jsonl");
  rows_ = is_array_ ? split_array(text, path.string()) : split_lines(text);
  file_.drop_pages(0, bytes());  // the scan is over; rows are read again one by one
}

std::string_view RowFile::text(const RowRef& row) const {
  return file_.text().substr(row.offset, row.bytes);
}

std::string RowFile::place(const RowRef& row) const {
  return fmt::format("{}:{}", path().string(), row.line);
}

}  // namespace longhaul::data
