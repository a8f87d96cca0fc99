#include "data/row_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul::data {

void RowReport::add_fault(const RowFault& fault, const std::string& place) {
  const auto known = std::find_if(dropped.begin(), dropped.end(), [&](const DropCount& count) {
    return count.reason == fault.reason;
  });
  if (known != dropped.end()) {
    ++known->rows;
    return;
  }
  dropped.push_back(
      {.reason = fault.reason, .rows = 1, .first_place = place, .first_detail = fault.detail});
}

std::int64_t RowReport::rows_dropped() const {
  std::int64_t total = 0;
  for (const DropCount& count : dropped) {
    total += count.rows;
  }
  return total;
}

std::vector<std::string> report_lines(const std::string& name, const RowReport& report,
                                      std::int64_t max_length) {
  const std::int64_t kept = report.rows_well_formed - report.rows_too_long;
  std::string line = fmt::format("{}: {} rows read, {} kept", name, report.rows_read, kept);
  if (report.rows_too_long > 0) {
    line += fmt::format(", {} longer than {} tokens left out", report.rows_too_long, max_length);
  }
  if (report.rows_shortened > 0) {
    line += fmt::format(", {} cut to {} tokens", report.rows_shortened, max_length);
  }
  if (report.rows_without_targets > 0) {
    line += fmt::format(", {} without any target token", report.rows_without_targets);
  }
  if (report.rows_repeated > 0) {
    line += fmt::format(", {} taken again to reach the number asked for", report.rows_repeated);
  }
  if (report.rows_dropped() > 0) {
    line += fmt::format(", {} bad rows dropped", report.rows_dropped());
  }
  std::vector<std::string> lines = {line};
  if (report.rows_too_long > 0) {
    lines.push_back(fmt::format("{}: longest row: {} tokens, {}", name, report.longest_row,
                                report.longest_place));
  }
  for (const DropCount& count : report.dropped) {
    lines.push_back(fmt::format("{}: dropped {}: {} (first: {}{}{})", name, count.rows,
                                count.reason, count.first_place,
                                count.first_detail.empty() ? "" : ": ", count.first_detail));
  }
  return lines;
}

base::OrderedJson report_to_json(const RowReport& report) {
  base::OrderedJson dropped = base::OrderedJson::array();
  for (const DropCount& count : report.dropped) {
    dropped.push_back({{"reason", count.reason},
                       {"rows", count.rows},
                       {"first_place", count.first_place},
                       {"first_detail", count.first_detail}});
  }
  return {{"rows_read", report.rows_read},
          {"rows_well_formed", report.rows_well_formed},
          {"rows_too_long", report.rows_too_long},
          {"rows_shortened", report.rows_shortened},
          {"rows_without_targets", report.rows_without_targets},
          {"rows_repeated", report.rows_repeated},
          {"longest_row", report.longest_row},
          {"longest_place", report.longest_place},
          {"columns_found", report.columns_found},
          {"dropped", dropped}};
}

RowReport report_from_json(const base::OrderedJson& json) {
  RowReport report;
  json.at("rows_read").get_to(report.rows_read);
  json.at("rows_well_formed").get_to(report.rows_well_formed);
  json.at("rows_too_long").get_to(report.rows_too_long);
  json.at("rows_shortened").get_to(report.rows_shortened);
  json.at("rows_without_targets").get_to(report.rows_without_targets);
  json.at("rows_repeated").get_to(report.rows_repeated);
  json.at("longest_row").get_to(report.longest_row);
  json.at("longest_place").get_to(report.longest_place);
  json.at("columns_found").get_to(report.columns_found);
  for (const base::OrderedJson& entry : json.at("dropped")) {
    DropCount count;
    entry.at("reason").get_to(count.reason);
    entry.at("rows").get_to(count.rows);
    entry.at("first_place").get_to(count.first_place);
    entry.at("first_detail").get_to(count.first_detail);
    report.dropped.push_back(std::move(count));
  }
  return report;
}

}  // namespace longhaul::data
