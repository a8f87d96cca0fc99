// A data file as rows: JSON Lines, or one JSON array whose elements are the rows. The file is
// mapped, never read as a whole; only where each row lies is kept. What a row means is row_format's
// business.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace longhaul::data {

/// Where one row lies in its file.
struct RowRef {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t line = 0;  // counts from 1; of an array's element: the line on which it starts

  bool operator==(const RowRef&) const = default;
};

/// Rows of JSON Lines text: lines end at '\n' (a '\r' before it is dropped), blank lines are
/// skipped, a byte order mark at the start is skipped.
std::vector<RowRef> split_lines(std::string_view text);

/// Elements of a JSON array. A text whose outer structure is broken (array not closed, text behind
/// it, an empty element) is a UserError `where:line`, as the rows behind the break cannot be found;
/// a fault inside an element is found later, when that row is read.
std::vector<RowRef> split_array(std::string_view text, const std::string& where);

/// True when the text is to be read as one JSON array. `is_jsonl`: the file's name says JSON Lines,
/// then only a text that opens an array of objects counts.
bool is_json_array(std::string_view text, bool is_jsonl);

/// A mapped data file with its rows.
class RowFile {
 public:
  /// UserError when the file is missing, unreadable, UTF-16 or has a broken array.
  explicit RowFile(const std::filesystem::path& path);

  [[nodiscard]] const std::vector<RowRef>& rows() const { return rows_; }
  [[nodiscard]] std::string_view text(const RowRef& row) const;
  /// `file:line`
  [[nodiscard]] std::string place(const RowRef& row) const;
  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  [[nodiscard]] std::uint64_t bytes() const { return file_.bytes().size(); }
  /// True for one array (a row may span lines), false for JSON Lines.
  [[nodiscard]] bool is_array() const { return is_array_; }

 private:
  base::MappedFile file_;
  bool is_array_ = false;
  std::vector<RowRef> rows_;
};

}  // namespace longhaul::data
