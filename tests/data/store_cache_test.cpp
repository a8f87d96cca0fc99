#include "data/store_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "base/log.h"
#include "data_test_tools.h"

namespace longhaul::data {
namespace {

using std::chrono::milliseconds;

StoreMeta write_one_row(StoreWriter& writer) {
  const text::TokenizedSample sample{.ids = {4, 5}, .labels = {-100, 5}};
  writer.add_row(0, {}, {{sample}});
  return {.key = "", .files = {"f"}, .report = {}};
}

TEST(StoreCache, BuildsOnceAndFindsItAgain) {
  const TempFolder folder;
  int builds = 0;
  const auto build = [&builds](StoreWriter& writer) {
    ++builds;
    return write_one_row(writer);
  };
  const CacheRequest request{.folder = folder.path() / "deep" / "cache", .key = "k"};
  EXPECT_EQ(open_or_build(request, build)->num_tokens(), 2);
  EXPECT_EQ(open_or_build(request, build)->num_tokens(), 2);
  EXPECT_EQ(builds, 1);
  EXPECT_NE(store_path("f", "k"), store_path("f", "l"));
}

TEST(StoreCache, RebuildsADamagedFileAndSaysSo) {
  const TempFolder folder;
  std::vector<std::string> lines;
  base::set_log_sink([&lines](const std::string& line) { lines.push_back(line); });
  const CacheRequest request{.folder = folder.path(), .key = "k"};
  const auto path = open_or_build(request, write_one_row)->path();
  std::string bytes = base::read_file(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  folder.write(path.filename().string(), bytes);
  EXPECT_EQ(open_or_build(request, write_one_row)->num_tokens(), 2);
  base::set_log_sink({});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], testing::HasSubstr("is damaged"));
}

TEST(StoreCache, RebuildsAFileMadeForAnotherKey) {
  const TempFolder folder;
  const auto other =
      open_or_build({.folder = folder.path(), .key = "other"}, write_one_row)->path();
  std::filesystem::copy(other, store_path(folder.path(), "k"));
  EXPECT_EQ(open_or_build({.folder = folder.path(), .key = "k"}, write_one_row)->meta().key, "k");
}

TEST(StoreCache, LetsOneOfManyThreadsBuild) {
  const TempFolder folder;
  std::atomic<int> builds = 0;
  std::vector<std::thread> threads;
  std::atomic<int> opened = 0;
  for (int rank = 0; rank < 6; ++rank) {
    threads.emplace_back([&, rank] {
      const CacheRequest request{.folder = folder.path(), .key = "k", .builds_first = rank == 3};
      opened += open_or_build(request,
                              [&builds](StoreWriter& writer) {
                                ++builds;
                                std::this_thread::sleep_for(milliseconds(200));
                                return write_one_row(writer);
                              }) != nullptr
                    ? 1
                    : 0;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(opened, 6);
}

TEST(StoreCache, LetsOneOfTwoRacingProcessesBuild) {
  const TempFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto store =
          open_or_build({.folder = folder.path(), .key = "k"}, [&](StoreWriter& writer) {
            std::ofstream(folder.path() / ("built-by-" + std::to_string(::getpid()))) << "x";
            std::this_thread::sleep_for(milliseconds(300));
            return write_one_row(writer);
          });
      ::_exit(store->num_tokens() == 2 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  int builds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    builds += entry.path().filename().string().starts_with("built-by-") ? 1 : 0;
  }
  EXPECT_EQ(builds, 1);
}

TEST(StoreCache, TakesOverFromABuilderThatWasKilled) {
  const TempFolder folder;
  const CacheRequest request{.folder = folder.path(), .key = "k"};
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    open_or_build(request, [&](StoreWriter& writer) -> StoreMeta {
      write_one_row(writer);
      std::ofstream(folder.path() / "building") << "x";
      std::this_thread::sleep_for(std::chrono::minutes(5));
      return {};
    });
    ::_exit(0);
  }
  while (!std::filesystem::exists(folder.path() / "building")) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  std::thread killer([child] {
    std::this_thread::sleep_for(milliseconds(200));
    ::kill(child, SIGKILL);
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(open_or_build(request, write_one_row)->num_tokens(), 2);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(100));  // it did wait
  killer.join();
  int status = 0;
  ::waitpid(child, &status, 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
}

TEST(StoreCache, PassesTheBuildersErrorOnAndFreesTheLock) {
  const TempFolder folder;
  const CacheRequest request{.folder = folder.path(), .key = "k"};
  const auto fail = [](StoreWriter&) -> StoreMeta {
    throw base::UserError(base::Problem{.where = "a.jsonl:3", .what = "bad"});
  };
  EXPECT_THROW(open_or_build(request, fail), base::UserError);
  EXPECT_EQ(open_or_build(request, write_one_row)->num_tokens(), 2);
}

TEST(StoreCache, IsASystemErrorWithAHintWhenTheFolderCannotBeMade) {
  const TempFolder folder;
  folder.write("file", "x");
  const CacheRequest request{.folder = folder.path() / "file" / "cache", .key = "k"};
  EXPECT_THAT(error_of<base::SystemError>([&] { open_or_build(request, write_one_row); }),
              testing::HasSubstr("--cache_dir"));
}

}  // namespace
}  // namespace longhaul::data
