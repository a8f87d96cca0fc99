#include "data/store_writer.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

const text::TokenizedSample kSample{.ids = {1, 2, 3}, .labels = {-100, 2, -100}};

TEST(StoreWriter, KeepsRowsWithSeveralSamplesAndWithNone) {
  const TempFolder folder;
  {
    StoreWriter writer(folder.path() / "s", folder.path() / "t");
    writer.add_row(0, {.offset = 5, .bytes = 6, .line = 7}, {{kSample, kSample}});
    writer.add_row(0, {.offset = 8, .bytes = 9, .line = 10}, {});
    writer.add_row(0, {.offset = 11, .bytes = 12, .line = 13}, {{kSample}});
    EXPECT_EQ(writer.num_tokens(), 9U);
    writer.finish({.key = "", .files = {"f"}, .report = {}});
  }
  std::string fault;
  const auto file = StoreFile::open(folder.path() / "s", fault);
  ASSERT_NE(file, nullptr) << fault;
  ASSERT_EQ(file->rows().size(), 3U);
  EXPECT_EQ(file->rows()[0].num_samples, 2U);
  EXPECT_EQ(file->rows()[1].num_samples, 0U);
  EXPECT_EQ(file->rows()[2].first_sample, 2U);
  EXPECT_EQ(file->rows()[2].line, 13U);
  EXPECT_EQ(file->num_tokens(), 9);
  EXPECT_EQ(file->num_targets(), 3);
}

TEST(StoreWriter, LeavesNothingBehindWhenItIsNotFinished) {
  const TempFolder folder;
  {
    StoreWriter writer(folder.path() / "s", folder.path() / "t");
    writer.add_row(0, {}, {{kSample}});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(StoreWriter, RefusesSamplesThatBreakTheInvariant) {
  const TempFolder folder;
  StoreWriter writer(folder.path() / "s", folder.path() / "t");
  const auto add = [&writer](const text::TokenizedSample& sample) {
    writer.add_row(0, {}, {{sample}});
  };
  EXPECT_THROW(add({.ids = {}, .labels = {}}), base::InternalError);
  EXPECT_THROW(add({.ids = {1, 2}, .labels = {-100}}), base::InternalError);
  EXPECT_THROW(add({.ids = {1, 2}, .labels = {1, 2}}), base::InternalError);
  EXPECT_THROW(add({.ids = {1, 2}, .labels = {-100, 3}}), base::InternalError);
}

TEST(StoreWriter, NamesTheCacheOptionWhenItsFolderIsMissing) {
  EXPECT_THAT(error_of<base::SystemError>([] { StoreWriter("/nonexistent/s", "/nonexistent/t"); }),
              testing::HasSubstr("--cache_dir"));
}

TEST(StoreWriter, IsASystemErrorOnAFullDiskAndLeavesNoFile) {
  const TempFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // A limit on the size of files stands for the full disk: writes fail the same way.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 100000, .rlim_max = 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int code = 1;
    try {
      StoreWriter writer(folder.path() / "s", folder.path() / "t");
      text::TokenizedSample sample;
      sample.ids.assign(100000, 1);
      sample.labels.assign(100000, text::kNoLabel);
      for (int i = 0; i < 10; ++i) {
        writer.add_row(0, {}, {{sample}});
      }
      writer.finish({.key = "", .files = {"f"}, .report = {}});
    } catch (const base::SystemError& error) {
      code = std::string(error.what()).find("--cache_dir") == std::string::npos ? 2 : 0;
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace longhaul::data
