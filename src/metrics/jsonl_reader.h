// Reads logging.jsonl, also while a run is still appending to it or after it died in the middle of
// a line.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/record_json.h"
#include "metrics/step_record.h"

namespace longhaul::metrics {

/// Everything a log says, in file order.
struct RunLog {
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evaluations;
  /// Present once the run has ended.
  std::optional<RunSummary> summary;
  /// The file does not end at a line's end; what follows the last line break was left aside.
  bool torn_last_line = false;
};

/// Reads a whole log; UserError `file:line` for a complete line that is no record, or a missing
/// file.
RunLog read_log(const std::filesystem::path& path);

/// Calls `visit` with every complete line of `text` (without its line break) and its record; blank
/// lines are skipped. Returns whether a torn line follows the last line break. UserError
/// `where:line` as above.
bool for_each_log_line(std::string_view text, const std::string& where,
                       const std::function<void(std::string_view, const LogLine&)>& visit);

}  // namespace longhaul::metrics
