#include "data/tokenize_set.h"

#include <map>
#include <random>
#include <set>

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

class TokenizeTest : public testing::Test {
 protected:
  [[nodiscard]] TokenizeRequest request(const std::string& rows,
                                        std::optional<std::int64_t> take = std::nullopt) const {
    TokenizeRequest request;
    request.sources = {source("a.jsonl", rows, take)};
    request.max_length = 1000;
    return request;
  }

  [[nodiscard]] DataSource source(const std::string& name, const std::string& rows,
                                  std::optional<std::int64_t> take = std::nullopt) const {
    DataSource result;
    result.spec = name;
    result.files = {folder_.write(name, rows)};
    result.take = take;
    return result;
  }

  [[nodiscard]] std::shared_ptr<const StoreFile> run(const TokenizeRequest& request) const {
    const auto path = folder_.path() / "out.store";
    StoreWriter writer(path, folder_.path() / "out.tmp");
    writer.finish(tokenize_set(request, byte_encoding(), writer));
    std::string fault;
    auto file = StoreFile::open(path, fault);
    EXPECT_EQ(fault, "");
    return file;
  }

  /// The text of every sample.
  static std::vector<std::string> texts(const StoreFile& file) {
    std::vector<std::string> out;
    for (const SampleRecord& sample : file.samples()) {
      std::string text;
      for (const std::int32_t id : file.ids(sample)) {
        text += static_cast<char>(id);
      }
      out.push_back(text);
    }
    return out;
  }

  static std::string letters(int count) {
    std::string rows;
    for (int i = 0; i < count; ++i) {
      rows +=
          R"({"query": "", "response": ")" + std::string(1, static_cast<char>('a' + i)) + "\"}\n";
    }
    return rows;
  }

  TempFolder folder_;
};

using Strings = std::vector<std::string>;

TEST_F(TokenizeTest, KeepsFileOrderAndCountsBadRowsByReason) {
  const auto file =
      run(request("{\"query\": \"a\", \"response\": \"b\"}\n\noops\n"
                  "{\"query\": \"c\", \"response\": \"d\"}\n{\"query\": 1}\nworse\n"));
  EXPECT_EQ(texts(*file), (Strings{"ab", "cd"}));
  const RowReport& report = file->meta().report;
  EXPECT_EQ(report.rows_read, 5);
  EXPECT_EQ(report.rows_well_formed, 2);
  ASSERT_EQ(report.dropped.size(), 2U);
  EXPECT_EQ(report.dropped[0].reason, "malformed JSON");
  EXPECT_EQ(report.dropped[0].rows, 2);
  EXPECT_EQ(report.dropped[0].first_place, (folder_.path() / "a.jsonl:3").string());
  EXPECT_EQ(report.dropped[1].first_place, (folder_.path() / "a.jsonl:5").string());
}

TEST_F(TokenizeTest, StopsAtTheFirstBadRowUnderStrictWithAnyNumberOfThreads) {
  std::string rows = letters(20) + "oops\n{\"query\": 1}\n" + letters(20);
  for (const std::int64_t threads : {1, 4}) {
    TokenizeRequest strict = request(rows);
    strict.strict = true;
    strict.threads = threads;
    EXPECT_THAT(
        error_of<base::UserError>([&] { (void)run(strict); }),
        testing::AllOf(testing::StartsWith((folder_.path() / "a.jsonl:21: malformed").string()),
                       testing::HasSubstr("--strict false")));
  }
}

TEST_F(TokenizeTest, DoesNotDependOnTheNumberOfThreads) {
  std::string rows;
  for (int i = 0; i < 300; ++i) {
    rows +=
        i % 7 == 3 ? "oops\n" : row_of_length(1 + i * 37 % 200, static_cast<char>('a' + i % 26));
  }
  TokenizeRequest one = request(rows);
  TokenizeRequest many = one;
  many.threads = 5;
  const auto first = run(one);
  const auto expected = texts(*first);
  const auto meta = first->meta();
  const auto second = run(many);
  EXPECT_EQ(texts(*second), expected);
  EXPECT_EQ(second->meta(), meta);
}

TEST_F(TokenizeTest, AppliesTheLengthPolicyAndCounts) {
  const std::string rows = row_of_length(5) + row_of_length(12) + row_of_length(10);
  TokenizeRequest r = request(rows);
  r.max_length = 10;
  const auto deleted = run(r);
  EXPECT_EQ(deleted->samples().size(), 2U);
  EXPECT_EQ(deleted->rows().size(), 3U);
  EXPECT_EQ(deleted->meta().report.rows_too_long, 1);
  EXPECT_EQ(deleted->meta().report.longest_row, 12);
  EXPECT_EQ(deleted->meta().report.longest_place, (folder_.path() / "a.jsonl:2").string());
  r.truncation = config::TruncationStrategy::kSplit;
  const auto split = run(r);
  EXPECT_EQ(split->samples().size(), 4U);
  EXPECT_EQ(split->rows()[1].num_samples, 2U);
  EXPECT_EQ(split->meta().report.rows_shortened, 1);
  EXPECT_EQ(split->meta().report.rows_too_long, 0);
}

TEST_F(TokenizeTest, CountsRowsWithoutTargets) {
  const auto file = run(request("{\"query\": \"abc\"}\n{\"query\": \"a\", \"response\": \"b\"}\n"));
  EXPECT_EQ(file->meta().report.rows_without_targets, 1);
  EXPECT_EQ(file->samples().size(), 2U);
}

TEST_F(TokenizeTest, DropsRowsWithoutAnyToken) {
  const auto file = run(request("{\"query\": \"\", \"response\": \"\"}\n" + letters(1)));
  ASSERT_EQ(file->meta().report.dropped.size(), 1U);
  EXPECT_EQ(file->meta().report.dropped[0].reason, "no token at all");
}

TEST_F(TokenizeTest, CountsRowsThatTheTemplateRefuses) {
  TokenizeRequest r = request(letters(3));
  const Encoding refusing{
      .identity = "x", .encode = [](const text::Conversation& conversation) {
        if (conversation.messages.back().content == "b") {
          throw base::UserError(base::Problem{.where = "template", .what = "no"});
        }
        return encode_bytes(conversation);
      }};
  StoreWriter writer(folder_.path() / "o", folder_.path() / "t");
  const StoreMeta meta = tokenize_set(r, refusing, writer);
  ASSERT_EQ(meta.report.dropped.size(), 1U);
  EXPECT_EQ(meta.report.dropped[0].first_detail, "template: no");
}

TEST_F(TokenizeTest, TakesTheFirstUsableRowsWithoutASeed) {
  const auto file = run(request("oops\n" + letters(5), 3));
  EXPECT_EQ(texts(*file), (Strings{"a", "b", "c"}));
  EXPECT_EQ(file->meta().report.rows_read, 4);
}

TEST_F(TokenizeTest, TakesASeededSampleOfDistinctRows) {
  TokenizeRequest r = request(letters(20), 8);
  r.sample_seed = 1;
  const Strings first = texts(*run(r));
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 8U);
  EXPECT_EQ(texts(*run(r)), first);
  r.threads = 4;
  EXPECT_EQ(texts(*run(r)), first);
  r.sample_seed = 2;
  EXPECT_NE(texts(*run(r)), first);
}

TEST_F(TokenizeTest, RepeatsRowsWhenMoreAreAskedForThanThereAre) {
  for (const bool random : {false, true}) {
    TokenizeRequest r = request("oops\n" + letters(3), 8);
    if (random) {
      r.sample_seed = 5;
    }
    const auto file = run(r);
    std::map<std::string, int> times;
    for (const std::string& text : texts(*file)) {
      ++times[text];
    }
    EXPECT_EQ(file->samples().size(), 8U);
    EXPECT_EQ(times.size(), 3U);
    for (const auto& [text, count] : times) {
      EXPECT_TRUE(count == 2 || count == 3) << text;
    }
    const RowReport& report = file->meta().report;
    EXPECT_EQ(report.rows_repeated, 5);
    EXPECT_EQ(report.rows_read, 4);
    EXPECT_EQ(report.rows_dropped(), 1);
    EXPECT_EQ(report.rows_well_formed + report.rows_dropped(),
              report.rows_read + report.rows_repeated);
  }
}

TEST_F(TokenizeTest, EndsWhenNoRowIsUsable) {
  const auto file = run(request("oops\nworse\n", 5));
  EXPECT_TRUE(file->samples().empty());
  EXPECT_EQ(file->meta().report.rows_dropped(), 2);
}

TEST_F(TokenizeTest, JoinsSourcesInOrderAndReadsArrays) {
  TokenizeRequest r = request(letters(2));
  r.sources.push_back(
      source("b.json", "[\n{\"query\": \"x\",\n \"response\": \"y\"},\n{\"query\": \"z\"}]"));
  const auto file = run(r);
  EXPECT_EQ(texts(*file), (Strings{"a", "b", "xy", "z"}));
  EXPECT_EQ(file->rows()[3].line, 4U);
  EXPECT_EQ(file->rows()[3].file, 1U);
  EXPECT_EQ(file->meta().files.size(), 2U);
}

TEST_F(TokenizeTest, RefusesAnEmptyFileByName) {
  for (const char* text : {"", "\n\n", "[]", "\xEF\xBB\xBF\r\n"}) {
    EXPECT_THAT(error_of<base::UserError>([&] { (void)run(request(text)); }),
                testing::HasSubstr("a.jsonl: the data set holds no row"));
  }
}

TEST_F(TokenizeTest, NotesWhichRenamedColumnsExist) {
  TokenizeRequest r = request("{\"ask\": \"a\", \"response\": \"b\"}\n");
  r.sources[0].format.columns = {{"ask", "query"}, {"nope", "response"}};
  EXPECT_THAT(run(r)->meta().report.columns_found, testing::ElementsAre("ask"));
}

TEST_F(TokenizeTest, KeyChangesWithEveryIngredient) {
  const TokenizeRequest base = request(letters(3), 2);
  std::vector<std::string> keys = {tokenize_key(base, byte_encoding())};
  EXPECT_EQ(tokenize_key(base, byte_encoding()), keys[0]);
  const auto add = [&](const std::function<void(TokenizeRequest&)>& change) {
    TokenizeRequest changed = base;
    change(changed);
    keys.push_back(tokenize_key(changed, byte_encoding()));
  };
  keys.push_back(tokenize_key(base, {.identity = "other", .encode = encode_bytes}));
  add([](TokenizeRequest& r) { r.max_length = 999; });
  add([](TokenizeRequest& r) { r.truncation = config::TruncationStrategy::kRight; });
  add([](TokenizeRequest& r) { r.strict = true; });
  add([](TokenizeRequest& r) { r.sample_seed = 1; });
  add([](TokenizeRequest& r) { r.sample_seed = 2; });
  add([](TokenizeRequest& r) { r.sources[0].take = 3; });
  add([](TokenizeRequest& r) { r.sources[0].take.reset(); });
  add([](TokenizeRequest& r) { r.sources[0].format.columns = {{"a", "query"}}; });
  add([](TokenizeRequest& r) { r.sources[0].format.pretraining = true; });
  add([](TokenizeRequest& r) { r.sources[0].format.user_role = "me"; });
  add([](TokenizeRequest& r) { r.sources.push_back(r.sources[0]); });
  add([this](TokenizeRequest& r) { r.sources[0].files = {folder_.write("c.jsonl", letters(3))}; });
  add([this](TokenizeRequest& r) { r.sources[0].files = {folder_.write("a.jsonl", letters(4))}; });
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size());
  TokenizeRequest threads = request(letters(3), 2);
  threads.threads = 7;
  EXPECT_EQ(tokenize_key(threads, byte_encoding()), keys[0]);  // changes nothing in the result
}

TEST_F(TokenizeTest, SurvivesMutatedFiles) {
  std::mt19937 random(9);
  const std::string lines =
      letters(4) + "{\"messages\": [{\"role\": \"user\", \"content\": \"h\"}]}\n";
  const std::string array = "[{\"query\": \"a\", \"response\": \"b\"},\n {\"text\": \"c\"}]";
  const std::string bytes = "{}[]\",:\\\n\r\xff a0";
  int stores = 0;
  for (int i = 0; i < 300; ++i) {
    std::string text = i % 3 == 0 ? array : lines;
    for (auto changes = random() % 6; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0) {
        text.erase(at, 1 + random() % 20);
      } else {
        text.insert(at, 1, bytes[random() % bytes.size()]);
      }
      text += text.empty() ? "x" : "";
    }
    try {
      const auto file = run(request(text));
      const RowReport& report = file->meta().report;
      ASSERT_EQ(report.rows_well_formed + report.rows_dropped(), report.rows_read);
      ASSERT_EQ(static_cast<std::int64_t>(file->rows().size()), report.rows_well_formed);
      ++stores;
    } catch (const base::UserError& error) {
      ASSERT_THAT(error.what(), testing::HasSubstr("a.jsonl"));
    }
  }
  EXPECT_GT(stores, 50);
}

}  // namespace
}  // namespace longhaul::data
