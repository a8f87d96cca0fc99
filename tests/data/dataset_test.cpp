#include "data/dataset.h"

#include "base/file.h"
#include "data/batch_builder.h"
#include "data_test_tools.h"

namespace longhaul::data {
namespace {

class DatasetTest : public testing::Test {
 protected:
  DatasetTest() {
    config_.data.dataset = {"a.jsonl"};
    config_.data.dataset_shuffle = false;
    config_.max_length = 50;
    config_.row_length = 50;
    environment_.cache_dir = folder_.path() / "cache";
    environment_.places.here = folder_.path();
  }

  void write_rows(const std::string& name, int count) const {
    std::string rows;
    for (int i = 0; i < count; ++i) {
      rows += R"({"query": "q", "response": ")" + name.substr(0, 1) + std::to_string(i) + "\"}\n";
    }
    folder_.write(name, rows);
  }

  [[nodiscard]] Datasets load() const {
    return load_datasets(config_, byte_encoding(), environment_);
  }
  [[nodiscard]] std::string fault() const {
    return error_of<base::UserError>([this] { (void)load(); });
  }
  static std::vector<std::string> texts(const TokenStore& store) {
    std::vector<std::string> out;
    for (std::int64_t i = 0; i < store.size(); ++i) {
      std::string text;
      for (const std::int32_t id : store.ids(i)) {
        text += static_cast<char>(id);
      }
      out.push_back(text);
    }
    return out;
  }

  TempFolder folder_;
  config::Config config_;
  DataEnvironment environment_;
};

using Strings = std::vector<std::string>;

TEST_F(DatasetTest, JoinsDataSetsInOrderWithoutShuffling) {
  write_rows("a.jsonl", 2);
  write_rows("b.jsonl", 2);
  config_.data.dataset = {"b.jsonl", "a.jsonl#1"};
  EXPECT_EQ(texts(load().train), (Strings{"qb0", "qb1", "qa0"}));
}

TEST_F(DatasetTest, ShufflesBySeedAndKeepsEveryRow) {
  write_rows("a.jsonl", 30);
  const Strings in_order = texts(load().train);
  config_.data.dataset_shuffle = true;
  const Strings shuffled = texts(load().train);
  EXPECT_NE(shuffled, in_order);
  EXPECT_EQ(texts(load().train), shuffled);
  config_.data.data_seed = 7;
  const Strings other = texts(load().train);
  EXPECT_NE(other, shuffled);
  EXPECT_TRUE(std::is_permutation(other.begin(), other.end(), in_order.begin()));
}

TEST_F(DatasetTest, DoesNotTokeniseAgainForAnotherShuffle) {
  write_rows("a.jsonl", 5);
  (void)load();
  config_.data.data_seed = 9;
  config_.data.dataset_shuffle = true;
  const Encoding failing{.identity = "bytes",
                         .encode = [](const text::Conversation&) -> text::TokenizedSample {
                           throw std::logic_error("tokenised again");
                         }};
  EXPECT_EQ(load_datasets(config_, failing, environment_).train.size(), 5);
}

TEST_F(DatasetTest, SplitsRowsAndReturnsTheirText) {
  write_rows("a.jsonl", 20);
  config_.data.split_dataset_ratio = 0.2;
  for (const bool shuffled : {false, true}) {
    config_.data.dataset_shuffle = shuffled;
    const Datasets datasets = load();
    EXPECT_EQ(datasets.train.size(), 16);
    ASSERT_EQ(datasets.validation->size(), 4);
    EXPECT_TRUE(datasets.report.split);
    Strings all = texts(datasets.train);
    const Strings held = texts(*datasets.validation);
    all.insert(all.end(), held.begin(), held.end());
    EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 20U);
    if (!shuffled) {
      EXPECT_EQ(held, (Strings{"qa16", "qa17", "qa18", "qa19"}));
    }
    write_split_rows(datasets, folder_.path() / "val_dataset.jsonl");
    std::string expected;
    for (const std::string& text : held) {
      expected += R"({"query": "q", "response": ")" + text.substr(1) + "\"}\n";
    }
    EXPECT_EQ(base::read_file(folder_.path() / "val_dataset.jsonl"), expected);
  }
}

TEST_F(DatasetTest, WritesSplitRowsOfAnArrayOneByLine) {
  folder_.write("a.json",
                "[\n{\"query\": \"q\",\r\n \"response\": \"a\\nb\"},\n{\"query\": \"q\", "
                "\n\"response\": \"c\"}]");
  config_.data.dataset = {"a.json"};
  config_.data.split_dataset_ratio = 0.5;
  write_split_rows(load(), folder_.path() / "v.jsonl");
  EXPECT_EQ(base::read_file(folder_.path() / "v.jsonl"),
            "{\"query\": \"q\",  \"response\": \"c\"}\n");
}

TEST_F(DatasetTest, KeepsASplitWhenTheLengthLimitChanges) {
  write_rows("a.jsonl", 20);
  config_.data.split_dataset_ratio = 0.3;
  config_.data.dataset_shuffle = true;
  const auto rows = load().split_rows;
  config_.max_length = 3;
  EXPECT_EQ(load().split_rows, rows);
}

TEST_F(DatasetTest, RefusesASplitThatLeavesNothing) {
  write_rows("a.jsonl", 1);
  config_.data.split_dataset_ratio = 0.5;
  EXPECT_THAT(fault(), testing::StartsWith("--split_dataset_ratio: the split takes 1 of 1 rows"));
}

TEST_F(DatasetTest, KeepsTheValidationSetInFileOrder) {
  write_rows("a.jsonl", 9);
  write_rows("b.jsonl", 9);
  config_.data.val_dataset = {"b.jsonl#4"};
  config_.data.dataset_shuffle = true;
  const Datasets datasets = load();
  EXPECT_EQ(texts(*datasets.validation), (Strings{"qb0", "qb1", "qb2", "qb3"}));
  EXPECT_EQ(datasets.report.validation_rows->rows_read, 4);
  EXPECT_EQ(datasets.train.size(), 9);
}

TEST_F(DatasetTest, RefusesASplitBesideAValidationSet) {
  write_rows("a.jsonl", 9);
  config_.data.val_dataset = {"a.jsonl"};
  config_.data.split_dataset_ratio = 0.1;
  EXPECT_THAT(fault(), testing::HasSubstr("cannot be combined with --val_dataset"));
}

TEST_F(DatasetTest, LimitsSamplesToThePackedRow) {
  folder_.write("a.jsonl", row_of_length(20) + row_of_length(30) + row_of_length(31));
  config_.data.packing = true;
  config_.row_length = 30;
  const Datasets datasets = load();
  EXPECT_EQ(datasets.train.size(), 2);
  EXPECT_EQ(datasets.report.max_length, 30);
}

TEST_F(DatasetTest, RefusesASetWithoutRowsSayingWhy) {
  folder_.write("a.jsonl", row_of_length(60) + row_of_length(70) + "oops\n");
  EXPECT_THAT(fault(),
              testing::AllOf(testing::StartsWith("--dataset: no row is left to use, 2 rows "
                                                 "are longer than 50 tokens (longest: 70, "),
                             testing::HasSubstr("a.jsonl:2"),
                             testing::HasSubstr("1 dropped: malformed JSON"),
                             testing::HasSubstr("--max_length")));
}

TEST_F(DatasetTest, RefusesASetWithoutTargets) {
  folder_.write("a.jsonl", "{\"query\": \"abc\"}\n");
  EXPECT_THAT(fault(), testing::StartsWith("--dataset: no row has a target token"));
  write_rows("b.jsonl", 3);
  config_.data.dataset = {"b.jsonl"};
  config_.data.val_dataset = {"a.jsonl"};
  EXPECT_THAT(fault(), testing::StartsWith("--val_dataset: no row has a target token"));
}

TEST_F(DatasetTest, RefusesAColumnThatNoRowHas) {
  write_rows("a.jsonl", 3);
  config_.data.columns = {{"ask", "query"}};
  EXPECT_THAT(fault(), testing::StrEq("--columns: no row has this column (got ask)"));
  folder_.write("b.jsonl", "{\"ask\": \"q\", \"response\": \"r\"}\n");
  config_.data.val_dataset = {"b.jsonl"};
  EXPECT_EQ(load().train.size(), 3);
}

TEST_F(DatasetTest, ReadsPlainTextWithoutAChatTemplate) {
  folder_.write("a.jsonl", "{\"text\": \"hello\"}\n");
  EXPECT_THAT(fault(), testing::HasSubstr("an answer without a question"));
  config_.model.use_chat_template = false;
  EXPECT_EQ(load().train.total_targets(), 4);
}

TEST_F(DatasetTest, FingerprintFollowsContentsAndOptionsNotPaths) {
  write_rows("a.jsonl", 5);
  const std::string first = load().report.fingerprint;
  std::filesystem::rename(folder_.path() / "a.jsonl", folder_.path() / "b.jsonl");
  config_.data.dataset = {"b.jsonl"};
  EXPECT_EQ(load().report.fingerprint, first);
  config_.data.data_seed = 1;
  EXPECT_NE(load().report.fingerprint, first);
  config_.data.data_seed = 42;
  config_.max_length = 49;
  EXPECT_NE(load().report.fingerprint, first);
  config_.max_length = 50;
  write_rows("b.jsonl", 6);
  EXPECT_NE(load().report.fingerprint, first);
}

TEST_F(DatasetTest, IsTheSameForEveryRank) {
  write_rows("a.jsonl", 12);
  config_.data.dataset_shuffle = true;
  const Datasets first = load();
  config_.launch.rank = 3;
  config_.launch.ranks = 4;
  EXPECT_EQ(texts(load().train), texts(first.train));
}

TEST_F(DatasetTest, ReportsLinesForTheStartUpPrint) {
  write_rows("a.jsonl", 2);
  write_rows("b.jsonl", 1);
  config_.data.val_dataset = {"b.jsonl"};
  EXPECT_THAT(load().report.lines(), testing::ElementsAre("data: 2 rows read, 2 kept",
                                                          "validation data: 1 rows read, 1 kept"));
}

TEST_F(DatasetTest, NamesTheCacheOptionWhenTheFolderCannotBeWritten) {
  write_rows("a.jsonl", 2);
  folder_.write("file", "x");
  config_.data.cache_dir = (folder_.path() / "file" / "cache").string();
  EXPECT_THAT(error_of<base::SystemError>([this] { (void)load(); }),
              testing::HasSubstr("--cache_dir"));
}

}  // namespace
}  // namespace longhaul::data
