#include "data/row_report.h"

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

RowReport example() {
  RowReport report;
  report.rows_read = 10;
  report.rows_well_formed = 7;
  report.rows_too_long = 2;
  report.rows_without_targets = 1;
  report.longest_row = 99;
  report.longest_place = "a.jsonl:4";
  report.columns_found = {"ask"};
  report.add_fault({.reason = "malformed JSON", .detail = "column 3: oops"}, "a.jsonl:2");
  report.add_fault({.reason = "unknown role", .detail = "wizard"}, "a.jsonl:5");
  report.add_fault({.reason = "malformed JSON", .detail = "column 9: other"}, "a.jsonl:8");
  return report;
}

TEST(RowReport, CountsByReasonAndRemembersTheFirstPlace) {
  const RowReport report = example();
  EXPECT_EQ(report.rows_dropped(), 3);
  ASSERT_EQ(report.dropped.size(), 2U);
  EXPECT_EQ(report.dropped[0].rows, 2);
  EXPECT_EQ(report.dropped[0].first_place, "a.jsonl:2");
}

TEST(RowReport, WritesOneLineOfCountsAndOnePerReason) {
  EXPECT_THAT(report_lines("data", example(), 50),
              testing::ElementsAre(
                  "data: 10 rows read, 5 kept, 2 longer than 50 tokens left out, 1 without any "
                  "target token, 3 bad rows dropped",
                  "data: longest row: 99 tokens, a.jsonl:4",
                  "data: dropped 2: malformed JSON (first: a.jsonl:2: column 3: oops)",
                  "data: dropped 1: unknown role (first: a.jsonl:5: wizard)"));
}

TEST(RowReport, ComesBackFromJson) {
  EXPECT_EQ(report_from_json(report_to_json(example())), example());
}

}  // namespace
}  // namespace longhaul::data
