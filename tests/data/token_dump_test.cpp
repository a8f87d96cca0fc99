#include "data/token_dump.h"

#include "base/file.h"
#include "data_test_tools.h"

namespace longhaul::data {
namespace {

using Strings = std::vector<std::string>;

Strings lines_of(const std::string& text) {
  Strings out;
  tokenize_lines(
      text, "f",
      [](std::string_view line) { return std::vector<std::int32_t>(line.begin(), line.end()); },
      [&out](const std::string& json) { out.push_back(json); });
  return out;
}

TEST(SampleJson, LooksAsOtherToolsWriteIt) {
  EXPECT_EQ(sample_json({.ids = {1, 22, 3}, .labels = {-100, 22, -100}}),
            R"({"input_ids": [1, 22, 3], "labels": [-100, 22, -100]})");
  EXPECT_EQ(ids_json({}), "[]");
}

TEST(TokenizeLines, EndsLinesAtLineFeedsOnly) {
  EXPECT_EQ(lines_of("a\n\nb\r\n"), (Strings{"[97]", "[]", "[98, 13]"}));
  EXPECT_EQ(lines_of("a"), (Strings{"[97]"}));
  EXPECT_EQ(lines_of("a\n"), (Strings{"[97]"}));
  EXPECT_EQ(lines_of("\n\n"), (Strings{"[]", "[]"}));
  EXPECT_EQ(lines_of(""), Strings{});
}

TEST(TokenizeLines, NamesALineThatIsNotUtf8) {
  int emitted = 0;
  const auto run = [&emitted] {
    tokenize_lines(
        "a\nb\xff\n", "f", [](std::string_view) { return std::vector<std::int32_t>(); },
        [&emitted](const std::string&) { ++emitted; });
  };
  EXPECT_EQ(error_of<base::UserError>(run), "f:2: not UTF-8 text");
  EXPECT_EQ(emitted, 0);
}

TEST(DumpTokens, WritesOneLinePerSampleInOrder) {
  const TempFolder folder;
  const TokenStore store = store_of_lengths(folder.path(), {2, 1});
  const auto file = folder.write("out.jsonl", "old");
  dump_tokens(store, file);
  EXPECT_EQ(base::read_file(file),
            "{\"input_ids\": [0, 1], \"labels\": [-100, 1]}\n"
            "{\"input_ids\": [1000], \"labels\": [-100]}\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST(DumpTokens, WritesToADeviceAsItIs) {
  const TempFolder folder;
  const TokenStore store = store_of_lengths(folder.path(), {2});
  EXPECT_NO_THROW(dump_tokens(store, "/dev/null"));
  EXPECT_FALSE(std::filesystem::is_regular_file("/dev/null"));
  EXPECT_THROW(dump_tokens(store, "/dev/full"), base::SystemError);
}

TEST(DumpTokens, IsASystemErrorWhereNothingCanBeWritten) {
  const TempFolder folder;
  const TokenStore store = store_of_lengths(folder.path(), {2});
  EXPECT_THROW(dump_tokens(store, "/nonexistent/out.jsonl"), base::SystemError);
  EXPECT_THROW(dump_tokens(store, folder.path()), base::SystemError);
}

}  // namespace
}  // namespace longhaul::data
