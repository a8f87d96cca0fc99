#include "data/dataset_info.h"

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

TEST(DatasetInfo, ReadsEntriesWithColumnsAndRoles) {
  const TempFolder folder;
  const auto file = folder.write("info.json", R"([
    {"dataset_name": "mine", "dataset_path": "sub/a.jsonl", "columns": {"ask": "query"}, "tags": ["x"],
     "split": ["train"], "help": "text"},
    {"dataset_path": "/data/b.jsonl", "messages": {"role_key": "who", "content_key": "what", "user_role": "me",
     "assistant_role": "it", "system_role": "rules"}},
    {"ms_dataset_id": "org/name", "hf_dataset_id": "org/name", "dataset_name": "hub", "subsets": ["a"]}])");
  const auto infos = read_dataset_info(file);
  ASSERT_EQ(infos.size(), 3U);
  EXPECT_EQ(infos[0].name, "mine");
  EXPECT_EQ(infos[0].path, folder.path() / "sub/a.jsonl");
  EXPECT_EQ(infos[0].format.columns.at("ask"), "query");
  EXPECT_EQ(infos[1].name, "b.jsonl");
  EXPECT_EQ(infos[1].path, "/data/b.jsonl");
  EXPECT_EQ(infos[1].format.role_key, "who");
  EXPECT_EQ(infos[1].format.system_role, "rules");
  EXPECT_TRUE(infos[2].path.empty());
}

TEST(DatasetInfo, RefusesWhatItDoesNotKnowByName) {
  const TempFolder folder;
  const auto fault = [&folder](const std::string& text) {
    const auto file = folder.write("info.json", text);
    return error_of<base::UserError>([&] { read_dataset_info(file); });
  };
  EXPECT_THAT(fault("[{\"dataset_path\": \"a\", \"formatting\": \"sharegpt\"}]"),
              testing::HasSubstr("entry 1: unknown key \"formatting\""));
  EXPECT_THAT(fault("[{\"dataset_path\": \"a\", \"split\": \"test\"}]"),
              testing::HasSubstr("unknown key \"split\""));
  EXPECT_THAT(fault("{\"a\": {}}"), testing::HasSubstr("not a list"));
  EXPECT_THAT(fault("[1]"), testing::HasSubstr("entry 1: not an object"));
  EXPECT_THAT(fault("[{\"dataset_path\": 1}]"), testing::HasSubstr("\"dataset_path\" is not text"));
  EXPECT_THAT(fault("[{\"columns\": [1]}]"), testing::HasSubstr("\"columns\" is not an object"));
  EXPECT_THAT(fault("[{\"messages\": {\"tag\": \"x\"}}]"),
              testing::HasSubstr("unknown key \"tag\""));
  EXPECT_THAT(fault("[\n{]"), testing::HasSubstr("info.json:2: not valid JSON"));
}

}  // namespace
}  // namespace longhaul::data
