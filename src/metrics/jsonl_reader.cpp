#include "metrics/jsonl_reader.h"

#include <fmt/format.h>

#include <type_traits>

#include "base/error.h"
#include "base/file.h"

namespace longhaul::metrics {
namespace {

LogLine parse_line(std::string_view line, const std::string& where, std::size_t line_number) {
  base::JsonFault fault;
  std::string reason;
  const auto json = base::try_parse_ordered_json(line, fault);
  if (json) {
    if (auto record = from_json(*json, reason)) {
      return *std::move(record);
    }
  }
  throw base::UserError(
      base::Problem{.where = fmt::format("{}:{}", where, line_number),
                    .what = "not a line of a training log: " + (json ? reason : fault.reason)});
}

}  // namespace

bool for_each_log_line(std::string_view text, const std::string& where,
                       const std::function<void(std::string_view, const LogLine&)>& visit) {
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) {
      return true;
    }
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      visit(line, parse_line(line, where, line_number));
    }
    text.remove_prefix(end + 1);
  }
  return false;
}

RunLog read_log(const std::filesystem::path& path) {
  RunLog log;
  const std::string text = base::read_file(path);
  log.torn_last_line =
      for_each_log_line(text, path.string(), [&log](std::string_view, const LogLine& line) {
        std::visit(
            [&log](const auto& record) {
              using Record = std::decay_t<decltype(record)>;
              if constexpr (std::is_same_v<Record, StepRecord>) {
                log.steps.push_back(record);
              } else if constexpr (std::is_same_v<Record, EvalRecord>) {
                log.evaluations.push_back(record);
              } else {
                log.summary = record;
              }
            },
            line);
      });
  return log;
}

}  // namespace longhaul::metrics
