#include "cli/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <stdexcept>

#include "base/error.h"
#include "dist/probe_run.h"

namespace longhaul::cli {
namespace {

using config::DeviceChoice;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using Kind = LaunchDecision::Kind;

dist::Environment environment_of(std::map<std::string, std::string> variables) {
  variables.emplace("PATH", "/usr/local/bin:/usr/bin:/bin");
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

template <typename Error>
std::string error_of(const std::map<std::string, std::string>& variables,
                     DeviceChoice device = DeviceChoice::kCpu) {
  try {
    decide_launch(environment_of(variables), device);
  } catch (const Error& error) {
    return error.what();
  }
  return "no such error";
}

TEST(Launch, RunsOneRankHereByDefault) {
  const LaunchDecision decision = decide_launch(environment_of({}), DeviceChoice::kCpu);
  EXPECT_EQ(decision.kind, Kind::kRunHere);
  EXPECT_EQ(decision.info.ranks, 1);
  EXPECT_EQ(decide_launch(environment_of({{"NPROC_PER_NODE", "1"}}), DeviceChoice::kCpu).kind,
            Kind::kRunHere);
}

TEST(Launch, StartsRanksWhenAskedTo) {
  if (!dist_test::has_mpi()) {
    EXPECT_THAT(error_of<base::SystemError>({{"NPROC_PER_NODE", "2"}}),
                HasSubstr("liblonghaul_mpi.so"));
    return;
  }
  const LaunchDecision decision =
      decide_launch(environment_of({{"NPROC_PER_NODE", "2"}, {"NNODES", "1"}}), DeviceChoice::kCpu);
  EXPECT_EQ(decision.kind, Kind::kStartRanks);
  EXPECT_EQ(decision.info.ranks, 2);
  EXPECT_EQ(decision.info.local_ranks, 2);
}

TEST(Launch, NamesTheFileThatIsMissingBesideTheProgram) {
  // The same program in a folder from which the object is out of sight.
  const std::filesystem::path top = std::string(LONGHAUL_BINARY_DIR) + "/tests/dist/without_mpi";
  std::filesystem::remove_all(top);
  std::filesystem::create_directories(top / "a/b");
  const std::filesystem::path program = top / "a/b/probe";
  std::filesystem::create_hard_link(std::string(LONGHAUL_BINARY_DIR) + "/tests/dist/dist_probe",
                                    program);
  dist_test::ProbeRun run({}, {{"NPROC_PER_NODE", "2"}}, {program.string()});
  const dist_test::ProbeResult result = run.wait();
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(dist_test::error_lines(result.err),
              ElementsAre(AllOf(StartsWith("MPI: 2 CPU ranks were asked for, but there is no "
                                           "liblonghaul_mpi.so beside the program (in " +
                                           program.parent_path().string() + ")"),
                                HasSubstr("Put it back"), HasSubstr("apt install"))));
  std::filesystem::remove_all(top);
}

TEST(Launch, NeedsMpirunForSeveralRanks) {
  EXPECT_THAT(error_of<base::SystemError>({{"NPROC_PER_NODE", "2"}, {"PATH", "/nowhere"}}),
              AllOf(StartsWith("MPI: 2 CPU ranks were asked for"), HasSubstr("apt install")));
}

TEST(Launch, IsARankUnderMpirunAndSaysWhatHasNoEffect) {
  if (!dist_test::has_mpi()) {
    GTEST_SKIP() << "needs Open MPI";
  }
  std::map<std::string, std::string> variables{{"OMPI_COMM_WORLD_RANK", "0"},
                                               {"OMPI_COMM_WORLD_SIZE", "2"},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                               {"NPROC_PER_NODE", "2"}};
  const LaunchDecision agreeing = decide_launch(environment_of(variables), DeviceChoice::kCpu);
  EXPECT_EQ(agreeing.kind, Kind::kRunHere);
  EXPECT_EQ(agreeing.info.ranks, 2);
  EXPECT_THAT(agreeing.notices, IsEmpty());
  variables["NPROC_PER_NODE"] = "4";
  EXPECT_THAT(
      decide_launch(environment_of(variables), DeviceChoice::kCpu).notices,
      ElementsAre("NPROC_PER_NODE=4 has no effect: mpirun has started 2 ranks on this machine"));
  variables["OMPI_COMM_WORLD_RANK"] = "1";
  EXPECT_THAT(decide_launch(environment_of(variables), DeviceChoice::kCpu).notices, IsEmpty());
}

TEST(Launch, RefusesCpuRanksUnderTorchrunNamingTheAlternatives) {
  const std::map<std::string, std::string> torchrun{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}};
  EXPECT_THAT(error_of<base::UserError>(torchrun),
              AllOf(HasSubstr("NPROC_PER_NODE"), HasSubstr("mpirun"), HasSubstr("srun")));
  EXPECT_EQ(decide_launch(environment_of(torchrun), DeviceChoice::kCuda).info.ranks, 2);
}

TEST(Launch, RefusesSeveralNodesNamingWhatStartsThem) {
  EXPECT_THAT(error_of<base::UserError>({{"NPROC_PER_NODE", "2"}, {"NNODES", "2"}}),
              AllOf(StartsWith("NNODES: "), HasSubstr("mpirun -n"), HasSubstr("srun")));
}

TEST(Launch, StartsGpuRanksThatMeetOnAFreePortOfThisMachine) {
  const LaunchDecision decision = decide_launch(
      environment_of({{"NPROC_PER_NODE", "2"}, {"MASTER_ADDR", "elsewhere"}, {"PATH", "/nowhere"}}),
      DeviceChoice::kCuda);
  EXPECT_EQ(decision.kind, Kind::kStartRanks);
  EXPECT_FALSE(decision.is_cpu);
  EXPECT_EQ(decision.info.local_ranks, 2);
  EXPECT_EQ(decision.place.host, "127.0.0.1");
  EXPECT_GT(decision.place.port, 1023);
}

TEST(Launch, StartsThisNodesGpuRanksOfSeveral) {
  std::map<std::string, std::string> variables{
      {"NPROC_PER_NODE", "4"}, {"NNODES", "3"}, {"NODE_RANK", "2"}};
  EXPECT_THAT(error_of<base::UserError>(variables, DeviceChoice::kCuda),
              StartsWith("MASTER_ADDR: "));
  variables["MASTER_ADDR"] = "first";
  const LaunchDecision decision = decide_launch(environment_of(variables), DeviceChoice::kCuda);
  EXPECT_EQ(decision.info.rank, 8);
  EXPECT_EQ(decision.info.ranks, 12);
  EXPECT_EQ(decision.info.local_ranks, 4);
  EXPECT_EQ(decision.place.host, "first");
  EXPECT_EQ(decision.place.port, 29500);
  variables["MASTER_PORT"] = "70000";
  EXPECT_THAT(error_of<base::UserError>(variables, DeviceChoice::kCuda),
              StartsWith("MASTER_PORT: "));
}

TEST(Launch, EveryCommandWithADeviceIsToldOfTheGpus) {
  using config::Command;
  const dist::Environment environment = environment_of({{"NPROC_PER_NODE", "3"}});
  const auto two_gpus = [] { return std::int64_t{2}; };
  for (const Command command : {Command::kSft, Command::kPt, Command::kBench, Command::kPlan}) {
    const config::LaunchInfo info = launch_info(command, environment, two_gpus);
    EXPECT_EQ(info.usable_gpus, 2);
    EXPECT_EQ(info.ranks, 3);
  }
  const config::LaunchInfo infer = launch_info(Command::kInfer, environment, two_gpus);
  EXPECT_EQ(infer.usable_gpus, 2);
  EXPECT_EQ(infer.ranks, 1);
  EXPECT_EQ(infer.local_rank, 0);
}

TEST(Launch, CommandsWithoutADeviceLeaveTheDriverAlone) {
  using config::Command;
  const auto ask = []() -> std::int64_t { throw std::logic_error("the driver is asked"); };
  EXPECT_EQ(launch_info(Command::kExport, environment_of({}), ask).ranks, 1);
  EXPECT_EQ(launch_info(Command::kData, environment_of({{"NPROC_PER_NODE", "2"}}), ask).ranks, 2);
}

TEST(Launch, PrintsOneLineUnderTorchrun) {
  for (const char* rank : {"0", "1"}) {
    dist_test::ProbeRun run({"environment"},
                            {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", rank}});
    const dist_test::ProbeResult result = run.wait();
    EXPECT_EQ(result.status, 2);
    const bool is_first = std::string(rank) == "0";
    EXPECT_EQ(dist_test::error_lines(result.err).size(), is_first ? 1U : 0U);
  }
}

}  // namespace
}  // namespace longhaul::cli
