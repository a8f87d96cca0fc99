#include "data/token_store.h"

#include <random>

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

text::TokenizedSample random_sample(std::mt19937& random, std::size_t length) {
  text::TokenizedSample sample;
  for (std::size_t i = 0; i < length; ++i) {
    const auto id = static_cast<std::int32_t>(random() % 150000);
    sample.ids.push_back(id);
    sample.labels.push_back(i > 0 && random() % 3 == 0 ? id : text::kNoLabel);
  }
  return sample;
}

std::filesystem::path write_store(const std::filesystem::path& folder,
                                  const std::vector<text::TokenizedSample>& samples) {
  StoreWriter writer(folder / "a.store", folder / "a.tmp");
  for (std::size_t i = 0; i < samples.size(); ++i) {
    writer.add_row(static_cast<std::uint32_t>(i % 2), {.offset = i, .bytes = 1, .line = i + 10},
                   {{samples[i]}});
  }
  writer.finish({.key = "k", .files = {"a.jsonl", "b.jsonl"}, .report = {}});
  return folder / "a.store";
}

TEST(TokenStore, ReturnsEverySampleAsItWasWritten) {
  const TempFolder folder;
  std::mt19937 random(1);
  std::vector<text::TokenizedSample> samples;
  for (const std::size_t length : {1, 2, 7, 8, 9, 31, 32, 33, 1000, 1, 5}) {
    samples.push_back(random_sample(random, length));
  }
  std::string fault;
  const auto file = StoreFile::open(write_store(folder.path(), samples), fault);
  ASSERT_NE(file, nullptr) << fault;
  EXPECT_EQ(file->meta().key, "k");
  const TokenStore store(file, {10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  std::int64_t tokens = 0;
  std::int64_t targets = 0;
  for (std::int64_t i = 0; i < store.size(); ++i) {
    const auto& expected = samples[static_cast<std::size_t>(i == 0 ? 10 : i - 1)];
    const text::TokenizedSample read = store.read(i);
    EXPECT_EQ(read.ids, expected.ids);
    EXPECT_EQ(read.labels, expected.labels);
    std::int64_t own = 0;
    for (std::int64_t k = 0; k < store.length(i); ++k) {
      const bool target = expected.labels[static_cast<std::size_t>(k)] != text::kNoLabel;
      EXPECT_EQ(store.is_target(i, k), target);
      own += target ? 1 : 0;
    }
    EXPECT_EQ(store.num_targets(i), own);
    tokens += store.length(i);
    targets += own;
  }
  EXPECT_EQ(store.total_tokens(), tokens);
  EXPECT_EQ(store.total_targets(), targets);
  EXPECT_EQ(store.longest(), 1000);
  EXPECT_EQ(store.origin(0), "a.jsonl:20");
  EXPECT_EQ(store.origin(2), "b.jsonl:11");
}

TEST(TokenStore, RefusesSampleNumbersOutsideItsSet) {
  const TempFolder folder;
  const TokenStore store = store_of_lengths(folder.path(), {2, 3});
  EXPECT_THROW((void)store.length(2), base::InternalError);
  EXPECT_THROW((void)store.ids(-1), base::InternalError);
  EXPECT_THROW((void)store.is_target(0, 2), base::InternalError);
}

TEST(StoreFile, NoticesAnyChangedByteAndAnyCut) {
  const TempFolder folder;
  std::mt19937 random(2);
  std::vector<text::TokenizedSample> samples;
  for (std::size_t i = 1; i < 6; ++i) {
    samples.push_back(random_sample(random, 3 * i));
  }
  const auto path = write_store(folder.path(), samples);
  const std::string good = base::read_file(path);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    std::string fault;
    EXPECT_EQ(StoreFile::open(folder.write("bad.store", bad), fault), nullptr) << at;
    EXPECT_FALSE(fault.empty());
  }
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{40}, good.size() / 2, good.size() - 1}) {
    std::string fault;
    EXPECT_EQ(StoreFile::open(folder.write("bad.store", good.substr(0, size)), fault), nullptr);
  }
  std::string fault;
  EXPECT_EQ(StoreFile::open(folder.write("bad.store", good + "x"), fault), nullptr);
  EXPECT_NE(StoreFile::open(path, fault), nullptr);
}

TEST(StoreFile, TellsAMissingFile) {
  std::string fault;
  EXPECT_EQ(StoreFile::open("/nonexistent/x.store", fault), nullptr);
  EXPECT_EQ(fault, "missing");
}

TEST(StoreMeta, ComesBackFromJson) {
  StoreMeta meta{.key = "k\"é", .files = {"a", "b"}, .report = {}};
  meta.report.rows_read = 4;
  EXPECT_EQ(meta_from_json(meta_to_json(meta)), meta);
}

}  // namespace
}  // namespace longhaul::data
