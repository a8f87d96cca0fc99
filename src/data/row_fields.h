// The columns of one row under our names: `--columns` applied, names compared without regard to
// ASCII case (an exact match wins), synonyms resolved. Small pieces that row_format and
// message_list share.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "data/row_report.h"

namespace longhaul::data {

/// One column: its name in the file and its value; null pointer when absent.
struct RowField {
  std::string name;
  const base::OrderedJson* value = nullptr;
};

/// View of a JSON object with renamed columns; the object must outlive it. A column whose value is
/// null counts as absent (tables fill missing cells with it).
class RowFields {
 public:
  RowFields(const base::OrderedJson& object, const std::map<std::string, std::string>& columns);

  /// The column called `name` (lower case).
  [[nodiscard]] RowField find(std::string_view name) const;

  /// The field that several names stand for. `names.front()` is the canonical one and wins; two
  /// different other names in one row are a fault, because choosing would be a guess.
  RowFault find_one(std::span<const std::string_view> names, std::string_view what,
                    RowField& out) const;

  /// Lower-case name and value, in file order.
  [[nodiscard]] const std::vector<std::pair<std::string, const base::OrderedJson*>>& entries()
      const {
    return entries_;
  }
  /// Bit i: the i-th renamed column (in the map's order) is in this row.
  [[nodiscard]] std::uint64_t columns_seen() const { return columns_seen_; }
  /// Names for a message, shortened.
  [[nodiscard]] std::string names() const;

 private:
  std::vector<std::pair<std::string, const base::OrderedJson*>> entries_;
  std::uint64_t columns_seen_ = 0;
};

/// ASCII lower case.
std::string lower_case(std::string_view text);

/// null, false, "", [] or {}: as good as absent.
bool is_blank(const base::OrderedJson& value);

/// Fault "wrong type" that names the place, what is there and what should be.
RowFault wrong_type(const std::string& place, const base::OrderedJson& value,
                    std::string_view expected);

}  // namespace longhaul::data
