#include "dist/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace longhaul::dist {
namespace {

using testing::HasSubstr;

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

void expect_info(const config::LaunchInfo& info, std::int64_t rank, std::int64_t local_rank,
                 std::int64_t ranks, std::int64_t local_ranks) {
  EXPECT_EQ(info.rank, rank);
  EXPECT_EQ(info.local_rank, local_rank);
  EXPECT_EQ(info.ranks, ranks);
  EXPECT_EQ(info.local_ranks, local_ranks);
}

TEST(Rendezvous, IsOneRankWhenNothingIsSaid) {
  const RankEnvironment found = read_rank_environment(environment_of({}));
  EXPECT_EQ(found.source, RankSource::kNobody);
  expect_info(found.info, 0, 0, 1, 1);
}

TEST(Rendezvous, ReadsMpirun) {
  const RankEnvironment found =
      read_rank_environment(environment_of({{"OMPI_COMM_WORLD_RANK", "5"},
                                            {"OMPI_COMM_WORLD_SIZE", "8"},
                                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                            {"SLURM_PROCID", "0"},
                                            {"SLURM_STEP_ID", "0"},
                                            {"SLURM_NTASKS", "1"},
                                            {"RANK", "3"},
                                            {"WORLD_SIZE", "4"}}));
  EXPECT_EQ(found.source, RankSource::kMpirun);
  expect_info(found.info, 5, 1, 8, 4);
}

TEST(Rendezvous, KnowsItsOwnLauncher) {
  const RankEnvironment found = read_rank_environment(environment_of({
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"LONGHAUL_LAUNCH_FOLDER", "/tmp/x"},
  }));
  EXPECT_EQ(found.source, RankSource::kOwnLauncher);
  EXPECT_EQ(found.launch_folder, "/tmp/x");
}

TEST(Rendezvous, ReadsAStepOfSlurmOverUnevenNodes) {
  const RankEnvironment found =
      read_rank_environment(environment_of({{"SLURM_PROCID", "9"},
                                            {"SLURM_STEP_ID", "0"},
                                            {"SLURM_STEP_NUM_TASKS", "11"},
                                            {"SLURM_NTASKS", "64"},
                                            {"SLURM_LOCALID", "1"},
                                            {"SLURM_NODEID", "2"},
                                            {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"}}));
  EXPECT_EQ(found.source, RankSource::kSlurm);
  expect_info(found.info, 9, 1, 11, 3);
}

TEST(Rendezvous, DoesNotTakeAnAllocationForAStep) {
  // The shell of salloc and the script of sbatch.
  const RankEnvironment found = read_rank_environment(
      environment_of({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}));
  EXPECT_EQ(found.source, RankSource::kNobody);
}

TEST(Rendezvous, ReadsTorchrun) {
  const RankEnvironment found = read_rank_environment(environment_of({{"RANK", "2"},
                                                                      {"WORLD_SIZE", "4"},
                                                                      {"LOCAL_RANK", "0"},
                                                                      {"LOCAL_WORLD_SIZE", "2"},
                                                                      {"NPROC_PER_NODE", "2"}}));
  EXPECT_EQ(found.source, RankSource::kTorchrun);
  expect_info(found.info, 2, 0, 4, 2);
  // Without its other variables, too.
  EXPECT_EQ(read_rank_environment(environment_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}})).source,
            RankSource::kTorchrun);
  // A pod's node number beside NPROC_PER_NODE is no rank.
  EXPECT_EQ(read_rank_environment(
                environment_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"NPROC_PER_NODE", "2"}}))
                .source,
            RankSource::kNobody);
}

TEST(Rendezvous, RefusesRanksOfAnotherMpi) {
  EXPECT_THROW(read_rank_environment(environment_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})),
               base::UserError);
}

TEST(Rendezvous, RefusesVariablesThatMakeNoSense) {
  try {
    read_rank_environment(
        environment_of({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}}));
    FAIL() << "accepted";
  } catch (const base::UserError& error) {
    EXPECT_STREQ(
        error.what(),
        "OMPI_COMM_WORLD_RANK: is not below OMPI_COMM_WORLD_SIZE (got 2, expected 0 to 1)");
  }
  EXPECT_THROW(read_rank_environment(
                   environment_of({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "2"}})),
               base::UserError);
}

TEST(Rendezvous, ReadsWhatTheUserAsksFor) {
  const RankRequest none = read_rank_request(environment_of({}));
  EXPECT_FALSE(none.is_given);
  EXPECT_EQ(none.ranks_per_node, 1);
  const RankRequest request = read_rank_request(
      environment_of({{"NPROC_PER_NODE", "4"}, {"NNODES", "2"}, {"NODE_RANK", "1"}}));
  EXPECT_TRUE(request.is_given);
  EXPECT_EQ(request.ranks_per_node, 4);
  EXPECT_EQ(request.nodes, 2);
  EXPECT_EQ(request.node_rank, 1);
}

TEST(Rendezvous, ListsEveryUnusableRequestAtOnce) {
  try {
    read_rank_request(
        environment_of({{"NPROC_PER_NODE", "two"}, {"NNODES", "0"}, {"NODE_RANK", " 1"}}));
    FAIL() << "accepted";
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.problems().size(), 3U);
    EXPECT_THAT(error.what(),
                HasSubstr("NPROC_PER_NODE: is not a usable number (got two, expected 1"));
  }
  for (const char* bad : {"", "0", "-1", "2.5", "99999", "2 "}) {
    EXPECT_THROW(read_rank_request(environment_of({{"NPROC_PER_NODE", bad}})), base::UserError)
        << bad;
  }
  EXPECT_THROW(read_rank_request(environment_of({{"NNODES", "2"}, {"NODE_RANK", "2"}})),
               base::UserError);
}

TEST(Rendezvous, SharesCoresBetweenLocalRanks) {
  EXPECT_EQ(default_threads(8, 3), 2);
  EXPECT_EQ(default_threads(2, 5), 1);
  EXPECT_EQ(default_threads(1, 1), 1);
  EXPECT_GE(available_cores(), 1);
}

TEST(Rendezvous, GivesRanksOfMpirunAndSrunACommonFolder) {
  RankEnvironment rank;
  rank.info.ranks = 2;
  rank.source = RankSource::kMpirun;
  EXPECT_EQ(
      job_folder(environment_of({{"PMIX_SERVER_TMPDIR", "/tmp/ompi"}, {"PMIX_NAMESPACE", "12"}}),
                 rank),
      "/tmp/ompi/longhaul-12");
  EXPECT_EQ(job_folder(environment_of({}), rank), std::nullopt);
  rank.source = RankSource::kSlurm;
  EXPECT_THAT(
      job_folder(environment_of({{"SLURM_JOB_ID", "5"}, {"SLURM_STEP_ID", "1"}}), rank)->string(),
      HasSubstr("-5.1"));
  rank.info.ranks = 1;
  EXPECT_EQ(job_folder(environment_of({{"SLURM_JOB_ID", "5"}, {"SLURM_STEP_ID", "1"}}), rank),
            std::nullopt);
}

TEST(ThreadCount, IsWhatOpenMpTakes) {
  for (const char* good : {"1", "2", "1024", "4,2", " 8 ", "4, 2 ,1"}) {
    EXPECT_TRUE(is_thread_count(good)) << good;
  }
  for (const char* bad : {"", " ", "0", "-1", "1025", "100000", "99999999999999999999", "abc", "2x",
                          "2.0", "4,", ",4", "4,,2", "4;2", "4,0"}) {
    EXPECT_FALSE(is_thread_count(bad)) << bad;
  }
}

TEST(ThreadCount, IsRefusedWithNameValueAndRange) {
  EXPECT_NO_THROW(check_thread_count(environment_of({})));
  EXPECT_NO_THROW(check_thread_count(environment_of({{"OMP_NUM_THREADS", "4,2"}})));
  try {
    check_thread_count(environment_of({{"OMP_NUM_THREADS", "100000"}}));
    FAIL();
  } catch (const base::UserError& error) {
    EXPECT_STREQ(error.what(),
                 "OMP_NUM_THREADS: is not a usable number of threads (got 100000, expected 1 to "
                 "1024). Unset it to use all cores");
  }
}

}  // namespace
}  // namespace longhaul::dist
