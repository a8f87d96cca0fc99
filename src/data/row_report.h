// What happened to the rows of a data set: how many were read, kept and dropped, and why. Filled
// while tokenising (in file order, so that "first" means first in the files), stored with the
// tokens, printed at start-up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace longhaul::data {

/// Why a row cannot be used. `reason` is one of a small set of texts (rows are counted by it),
/// `detail` says more about this row; an empty reason means that the row is fine.
struct RowFault {
  std::string reason;
  std::string detail{};

  [[nodiscard]] bool ok() const { return reason.empty(); }
};

/// Rows dropped for one reason.
struct DropCount {
  std::string reason;
  std::int64_t rows = 0;
  std::string first_place;  // file:line
  std::string first_detail;

  bool operator==(const DropCount&) const = default;
};

/// Counters of one set (all its sources together).
struct RowReport {
  std::int64_t rows_read = 0;         // blank lines not counted
  std::int64_t rows_well_formed = 0;  // rows_read minus the dropped ones
  std::int64_t rows_too_long = 0;     // well-formed, left out by --truncation_strategy delete
  std::int64_t rows_shortened = 0;    // cut by left, right or split
  std::int64_t rows_without_targets = 0;
  std::int64_t rows_repeated = 0;  // taken again because #N asks for more rows than there are
  std::int64_t longest_row = 0;    // tokens before the length policy
  std::string longest_place;
  std::vector<DropCount> dropped;          // by first appearance
  std::vector<std::string> columns_found;  // the renamed columns that some row has

  /// Counts a bad row.
  void add_fault(const RowFault& fault, const std::string& place);
  [[nodiscard]] std::int64_t rows_dropped() const;
  bool operator==(const RowReport&) const = default;
};

/// For people: one line of counts and one line per reason.
std::vector<std::string> report_lines(const std::string& name, const RowReport& report,
                                      std::int64_t max_length);

base::OrderedJson report_to_json(const RowReport& report);
/// Throws nlohmann's exceptions when `json` has another shape (a damaged store).
RowReport report_from_json(const base::OrderedJson& json);

}  // namespace longhaul::data
