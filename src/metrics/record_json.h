// One record ↔ one JSON object: the keys of a logging.jsonl line (docs/run_folder.md), and the
// named scalars that TensorBoard and the curves show. Numbers keep every bit; NaN and infinity,
// which JSON lacks, become null.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "metrics/step_record.h"

namespace longhaul::metrics {

/// What one line of logging.jsonl holds.
using LogLine = std::variant<StepRecord, EvalRecord, RunSummary>;

base::OrderedJson to_json(const StepRecord& record);
base::OrderedJson to_json(const EvalRecord& record);
base::OrderedJson to_json(const RunSummary& summary);

/// Reads one line's object; which record it is follows from its keys. A null number becomes NaN,
/// times come back in whole seconds, unknown keys are left aside. On failure `reason` says which
/// key is wrong.
std::optional<LogLine> from_json(const base::OrderedJson& json, std::string& reason);

/// A value at a step under a TensorBoard tag such as `train/loss`.
using Scalars = std::vector<std::pair<std::string, double>>;

Scalars scalars(const StepRecord& record);
Scalars scalars(const EvalRecord& record);

}  // namespace longhaul::metrics
