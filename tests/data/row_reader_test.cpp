#include "data/row_reader.h"

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

std::vector<std::string> texts(std::string_view text, const std::vector<RowRef>& rows) {
  std::vector<std::string> out;
  for (const RowRef& row : rows) {
    out.emplace_back(text.substr(row.offset, row.bytes));
  }
  return out;
}

std::vector<std::uint64_t> lines(const std::vector<RowRef>& rows) {
  std::vector<std::uint64_t> out;
  for (const RowRef& row : rows) {
    out.push_back(row.line);
  }
  return out;
}

using Strings = std::vector<std::string>;
using Numbers = std::vector<std::uint64_t>;

TEST(SplitLines, SkipsBlankLinesAndKeepsLineNumbers) {
  const std::string text = "\n{1}\n  \t\n{2}\n\n{3}";
  const auto rows = split_lines(text);
  EXPECT_EQ(texts(text, rows), (Strings{"{1}", "{2}", "{3}"}));
  EXPECT_EQ(lines(rows), (Numbers{2, 4, 6}));
}

TEST(SplitLines, DropsByteOrderMarkAndCarriageReturns) {
  const std::string text = "\xEF\xBB\xBF{1}\r\n\r\n{2}\r\n";
  const auto rows = split_lines(text);
  EXPECT_EQ(texts(text, rows), (Strings{"{1}", "{2}"}));
  EXPECT_EQ(lines(rows), (Numbers{1, 3}));
}

TEST(SplitLines, EndsLinesAtLineFeedsOnly) {
  const std::string text =
      "a\xE2\x80\xA8"
      "b\x0b"
      "c\rd\ne";
  EXPECT_EQ(texts(text, split_lines(text)), (Strings{"a\xE2\x80\xA8"
                                                     "b\x0b"
                                                     "c\rd",
                                                     "e"}));
}

TEST(SplitLines, FindsNothingInEmptyText) {
  EXPECT_TRUE(split_lines("").empty());
  EXPECT_TRUE(split_lines("\n \r\n").empty());
  EXPECT_TRUE(split_lines("\xEF\xBB\xBF").empty());
}

TEST(SplitArray, FindsElementsAcrossLinesAndInsideStrings) {
  const std::string text = " [\n{\"a\": \"],}\\\"\"},\n\n {\"b\": [1, {\"c\": 2}]} ,3\n]\n ";
  const auto rows = split_array(text, "f");
  EXPECT_EQ(texts(text, rows), (Strings{"{\"a\": \"],}\\\"\"}", "{\"b\": [1, {\"c\": 2}]}", "3"}));
  EXPECT_EQ(lines(rows), (Numbers{2, 4, 4}));
}

TEST(SplitArray, AcceptsAnEmptyArray) {
  EXPECT_TRUE(split_array("\xEF\xBB\xBF[ \n ]", "f").empty());
}

TEST(SplitArray, RefusesBrokenStructureNamingTheLine) {
  const auto fault = [](const std::string& text) {
    return error_of<base::UserError>([&] { split_array(text, "f.json"); });
  };
  EXPECT_THAT(fault("[\n{}"),
              testing::StartsWith("f.json:2: not valid JSON: the array is not closed"));
  EXPECT_THAT(fault("["), testing::HasSubstr("not closed"));
  EXPECT_THAT(fault("[{},"), testing::HasSubstr("not closed"));
  EXPECT_THAT(fault("[{}\n,,{}]"),
              testing::StartsWith("f.json:2: not valid JSON: an array element"));
  EXPECT_THAT(fault("[{},]"), testing::HasSubstr("an array element is missing"));
  EXPECT_THAT(fault("[{}]\n\n{}"), testing::StartsWith("f.json:3: not valid JSON: text behind"));
  EXPECT_THAT(fault("[1}]"), testing::HasSubstr("a bracket closes nothing"));
  EXPECT_THAT(fault("[{\"a\": \"]"), testing::HasSubstr("not closed"));
}

TEST(IsJsonArray, TellsAnArrayFileFromRowsThatAreArrays) {
  EXPECT_TRUE(is_json_array(" \n[1]", false));
  EXPECT_FALSE(is_json_array("{}", false));
  EXPECT_FALSE(is_json_array("", false));
  EXPECT_TRUE(is_json_array("[{\"a\": 1},\n{\"a\": 2}]", true));
  EXPECT_TRUE(is_json_array("[\n{}\n]", true));
  EXPECT_TRUE(is_json_array("[{}]\n", true));
  EXPECT_FALSE(is_json_array("[{}]\n[{}]\n", true));
  EXPECT_FALSE(is_json_array("[oops\n{}\n", true));
}

TEST(RowFile, NamesPlacesAndReadsRows) {
  const TempFolder folder;
  const RowFile file(folder.write("a.jsonl", "\n{\"x\": 1}\n"));
  ASSERT_EQ(file.rows().size(), 1U);
  EXPECT_EQ(file.text(file.rows()[0]), "{\"x\": 1}");
  EXPECT_EQ(file.place(file.rows()[0]), (folder.path() / "a.jsonl:2").string());
}

TEST(RowFile, RefusesUtf16ByName) {
  const TempFolder folder;
  const auto path = folder.write("a.jsonl", std::string("\xFF\xFE{\0}\0", 6));
  EXPECT_THAT(error_of<base::UserError>([&] { RowFile file(path); }), testing::HasSubstr("UTF-16"));
}

TEST(RowFile, IsAUserErrorWhenMissing) {
  EXPECT_THROW(RowFile("/nonexistent/a.jsonl"), base::UserError);
}

}  // namespace
}  // namespace longhaul::data
