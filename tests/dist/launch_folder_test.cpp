#include "dist/launch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

namespace longhaul::dist {
namespace {

namespace fs = std::filesystem;

TEST(LaunchFolder, IsPrivateHoldsPagesAndPipesAndGoesAway) {
  fs::path path;
  {
    const LaunchFolder folder(3);
    path = folder.path();
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    EXPECT_TRUE(fs::is_regular_file(rank_page_path(path, 2)));
    EXPECT_TRUE(fs::is_fifo(output_pipe_path(path)));
    EXPECT_TRUE(fs::is_fifo(error_pipe_path(path)));
    EXPECT_EQ(folder.launcher().pid, getpid());
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(LaunchFolder, SharesAPageBetweenTwoThatOpenIt) {
  const LaunchFolder folder(2);
  const SharedPage<RankPage> other(rank_page_path(folder.path(), 1));
  other->step = 7;
  other->activity.set("load weights");
  EXPECT_EQ(rank_place(folder.rank(1), 1), "rank 1, step 7, load weights");
  other->operation.set("exchange q,k,v");
  other->is_in_operation = 1;
  EXPECT_EQ(rank_place(folder.rank(1), 1), "rank 1, step 7, exchange q,k,v");
  EXPECT_EQ(rank_place(folder.rank(0), 0), "rank 0, step 0, start");
}

TEST(LaunchFolder, KeepsTheFirstOutcome) {
  const LaunchFolder folder(1);
  record_outcome(folder.rank(0), Outcome::kError, 2, "one\ntwo\n");
  record_outcome(folder.rank(0), Outcome::kFinished, 0, "late");
  EXPECT_EQ(folder.rank(0).outcome, Outcome::kError);
  EXPECT_EQ(folder.rank(0).exit_code, 2);
  EXPECT_THAT(recorded_lines(folder.rank(0)), testing::ElementsAre("one", "two"));
}

TEST(LaunchFolder, CutsTextThatDoesNotFit) {
  const LaunchFolder folder(1);
  folder.rank(0).activity.set(std::string(1000, 'x'));
  EXPECT_LT(folder.rank(0).activity.get().size(), 200U);
  record_outcome(folder.rank(0), Outcome::kError, 2, std::string(100'000, 'y'));
  EXPECT_EQ(recorded_lines(folder.rank(0)).at(0).size(), folder.rank(0).text.size());
}

TEST(LaunchFolder, SaysWhatToDoWhenThePlaceCannotBeWritten) {
  EXPECT_THROW(SharedPage<RankPage>("/nowhere/at/all/rank-0"), base::SystemError);
}

}  // namespace
}  // namespace longhaul::dist
