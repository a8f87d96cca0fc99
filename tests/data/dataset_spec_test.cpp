#include "data/dataset_spec.h"

#include <unistd.h>

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

class DatasetSpecTest : public testing::Test {
 protected:
  DatasetSpecTest() {
    places_.here = folder_.path() / "here";
    places_.data_folder = folder_.path() / "data";
    folder_.write("here/a.jsonl", "{}\n");
    folder_.write("here/b#5.jsonl", "{}\n");
    folder_.write("here/c:d.jsonl", "{}\n");
    folder_.write("data/e.json", "[]");
    folder_.write("data/a.jsonl", "{}\n");
    folder_.write("here/set/2.jsonl", "{}\n");
    folder_.write("here/set/1.json", "[]");
    folder_.write("here/set/README.md", "x");
    folder_.write("here/set/dataset_infos.json", "{}");
    folder_.write("here/table/1.jsonl", "{}\n");
    folder_.write("here/table/2.parquet", "x");
    folder_.write("here/t.csv", "x");
    std::filesystem::create_directory(folder_.path() / "here/empty");
  }

  [[nodiscard]] DatasetSpec parse(const std::string& value) const {
    return parse_dataset_spec(value, "--dataset", places_);
  }
  [[nodiscard]] std::vector<DataSource> resolve(const std::vector<std::string>& values) const {
    return resolve_datasets(values, "--dataset", places_, {{"col", "query"}}, false);
  }
  [[nodiscard]] std::string fault(const std::string& value) const {
    return error_of<base::UserError>([&] { (void)resolve({value}); });
  }
  [[nodiscard]] std::vector<std::string> files(const std::string& value) const {
    std::vector<std::string> names;
    const auto sources = resolve({value});
    for (const auto& path : sources.front().files) {
      EXPECT_TRUE(path.is_absolute());
      names.push_back(path.lexically_relative(folder_.path()).string());
    }
    return names;
  }

  TempFolder folder_;
  DatasetPlaces places_;
};

using Strings = std::vector<std::string>;

TEST_F(DatasetSpecTest, SplitsHubSubsetAndNumber) {
  const DatasetSpec spec = parse("HF::org/name:sub#1000");
  EXPECT_EQ(spec.hub, "hf");
  EXPECT_EQ(spec.id, "org/name");
  EXPECT_EQ(spec.subset, "sub");
  EXPECT_EQ(spec.take, 1000);
  EXPECT_EQ(parse("ms::x").hub, "ms");
  EXPECT_EQ(parse("plain").id, "plain");
  EXPECT_EQ(parse("a.jsonl#3").take, 3);
}

TEST_F(DatasetSpecTest, AnExistingPathWinsOverTheSyntax) {
  EXPECT_EQ(parse("b#5.jsonl").id, "b#5.jsonl");
  EXPECT_EQ(parse("b#5.jsonl").take, std::nullopt);
  EXPECT_EQ(parse("b#5.jsonl#7").take, 7);
  EXPECT_EQ(parse("c:d.jsonl#2").id, "c:d.jsonl");
}

TEST_F(DatasetSpecTest, RefusesANumberThatIsNone) {
  for (const char* value : {"a.jsonl#0", "a.jsonl#-1", "a.jsonl#x", "a.jsonl#", "a.jsonl#1.5",
                            "a.jsonl#99999999999999999999"}) {
    EXPECT_THAT(fault(value), testing::HasSubstr("not a positive number")) << value;
  }
}

TEST_F(DatasetSpecTest, FindsFilesNamesAndFolders) {
  EXPECT_EQ(files("a.jsonl"), (Strings{"here/a.jsonl"}));
  EXPECT_EQ(files("a#2"), (Strings{"here/a.jsonl"}));  // here before the data folder
  EXPECT_EQ(files("e"), (Strings{"data/e.json"}));
  EXPECT_EQ(files("set"), (Strings{"here/set/1.json", "here/set/2.jsonl"}));
  EXPECT_EQ(files("./set/2.jsonl"), (Strings{"here/set/2.jsonl"}));
  EXPECT_EQ(resolve({"a#2"}).front().take, 2);
  EXPECT_EQ(resolve({"a"}).front().format.columns.at("col"), "query");
}

TEST_F(DatasetSpecTest, RefusesWithTheReason) {
  EXPECT_THAT(fault("hf::org/name"), testing::HasSubstr("from a hub are not available yet"));
  EXPECT_THAT(fault("org/name"), testing::HasSubstr("from a hub are not available yet"));
  EXPECT_THAT(fault("./missing.jsonl"),
              testing::StrEq("--dataset: no such file or folder (got ./missing.jsonl)"));
  EXPECT_THAT(fault("missing"), testing::HasSubstr("no missing.jsonl or missing.json here or in "
                                                   "$LONGHAUL_DATA"));
  EXPECT_THAT(fault("t.csv"), testing::HasSubstr("this file type is not available yet"));
  EXPECT_THAT(fault("table"), testing::HasSubstr("2.parquet"));
  EXPECT_THAT(fault("empty"), testing::HasSubstr("holds no .jsonl or .json file"));
  EXPECT_THAT(fault("a.jsonl:sub"), testing::HasSubstr("has no subsets"));
  EXPECT_THAT(fault(""), testing::HasSubstr("--dataset"));
}

TEST_F(DatasetSpecTest, SaysWhyAPathCannotBeLookedAt) {
  const auto here = places_.here;
  std::filesystem::create_symlink("loop.jsonl", here / "loop.jsonl");
  EXPECT_THAT(fault("loop.jsonl"),
              testing::StrEq("--dataset: cannot be looked at: Too many levels of symbolic links "
                             "(got " +
                             (here / "loop.jsonl").string() + ")"));
  EXPECT_THAT(fault(std::string(300, 'a')), testing::HasSubstr("File name too long"));
  std::filesystem::create_symlink("loop.jsonl", here / "set" / "loop.jsonl");
  EXPECT_THAT(fault("set"), testing::HasSubstr("Too many levels of symbolic links"));
  if (::geteuid() != 0) {  // root may look everywhere
    std::filesystem::permissions(here / "set", std::filesystem::perms::none);
    EXPECT_THAT(fault("set/2.jsonl"), testing::HasSubstr("Permission denied"));
    std::filesystem::permissions(here / "set", std::filesystem::perms::owner_all);
  }
}

TEST_F(DatasetSpecTest, RefusesPathsThatAreNotUtf8) {
  folder_.write("here/odd/\xff.jsonl", "{}");
  EXPECT_THAT(fault("odd"), testing::HasSubstr("not UTF-8 text"));
}

TEST_F(DatasetSpecTest, ListsEveryProblemAtOnce) {
  try {
    (void)resolve({"missing", "a.jsonl", "org/name"});
    FAIL();
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.problems().size(), 2U);
  }
}

TEST_F(DatasetSpecTest, LooksNamesUpInTheCustomFile) {
  places_.custom_dataset_info = folder_.write("info.json", R"([
    {"dataset_name": "mine", "dataset_path": "here/set", "columns": {"ask": "query", "col": "response"}},
    {"dataset_name": "hub", "ms_dataset_id": "org/name"},
    {"dataset_name": "gone", "dataset_path": "gone.jsonl"}])");
  const auto sources = resolve({"mine#9"});
  EXPECT_EQ(sources[0].files.size(), 2U);
  EXPECT_EQ(sources[0].take, 9);
  EXPECT_EQ(sources[0].format.columns.at("ask"), "query");
  EXPECT_EQ(sources[0].format.columns.at("col"), "query");  // the command line wins
  EXPECT_THAT(fault("hub"), testing::HasSubstr("no dataset_path"));
  EXPECT_THAT(fault("gone"), testing::HasSubstr("does not exist"));
  EXPECT_THAT(fault("other"), testing::HasSubstr("no such name in --custom_dataset_info"));
}

}  // namespace
}  // namespace longhaul::data
