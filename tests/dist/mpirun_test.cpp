#include "dist/mpirun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace longhaul::dist {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

MpirunRequest request_for(std::int64_t ranks, std::vector<std::string> command) {
  return {.mpirun = "/bin/mpirun",
          .command = std::move(command),
          .ranks = ranks,
          .folder = "/tmp/launch",
          .cores = 8,
          .terminal_columns = 0,
          .can_copy_between_processes = false};
}

TEST(Mpirun, StartsAsManyRanksAsAskedWhateverTheCoresAndTheUser) {
  EXPECT_THAT(
      mpirun_arguments(request_for(5, {"/bin/longhaul", "sft", "--seed", "1"})),
      ElementsAre("/bin/mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                  "--host", "localhost:5", "-np", "5", "/bin/longhaul", "sft", "--seed", "1"));
}

TEST(Mpirun, RefusesTheOneWordThatItWouldTakeForItself) {
  EXPECT_THROW(mpirun_arguments(request_for(2, {"/bin/longhaul", "sft", ":"})), base::UserError);
}

TEST(Mpirun, KeepsTheUsersVariablesAndAddsItsOwn) {
  const auto variables = mpirun_environment(
      request_for(3, {}), {"A=1", "OMPI_MCA_btl=self,tcp", "LONGHAUL_LAUNCH_FOLDER=/old"});
  EXPECT_THAT(variables, Contains("A=1"));
  EXPECT_THAT(variables, Contains("OMPI_MCA_btl=self,tcp"));
  EXPECT_THAT(variables, Not(Contains("OMPI_MCA_btl=self,vader")));
  EXPECT_THAT(variables, Contains("LONGHAUL_LAUNCH_FOLDER=/tmp/launch"));
  EXPECT_THAT(variables, Not(Contains("LONGHAUL_LAUNCH_FOLDER=/old")));
  EXPECT_THAT(variables, Contains("OMP_NUM_THREADS=2"));
  EXPECT_THAT(variables, Contains("OMPI_MCA_btl_vader_single_copy_mechanism=none"));
}

TEST(Mpirun, LetsThreadsSleepSoonUnlessTheUserHasDecided) {
  EXPECT_THAT(mpirun_environment(request_for(3, {}), {}), Contains("GOMP_SPINCOUNT=1000"));
  for (const char* own : {"OMP_WAIT_POLICY=active", "GOMP_SPINCOUNT=100"}) {
    const auto policies = mpirun_environment(request_for(3, {}), {own});
    EXPECT_THAT(policies, Contains(own));
    EXPECT_THAT(policies, Not(Contains("GOMP_SPINCOUNT=1000")));
  }
}

TEST(Mpirun, RespectsOmpNumThreads) {
  const auto variables = mpirun_environment(request_for(3, {}), {"OMP_NUM_THREADS=7"});
  EXPECT_THAT(variables, Contains("OMP_NUM_THREADS=7"));
  EXPECT_THAT(variables, Not(Contains("OMP_NUM_THREADS=2")));
}

std::optional<fs::path> found_in(const std::string& path) {
  return find_mpirun([&](const std::string& name) {
    return name == "PATH" ? std::optional<std::string>(path) : std::nullopt;
  });
}

TEST(Mpirun, IsCalledByItsRealFolder) {
  // From a path /bin/mpirun it would take `/` for its prefix, and refuse.
  const fs::path folder = fs::canonical(fs::temp_directory_path()) / "mpirun_folder_test";
  fs::remove_all(folder);
  fs::create_directories(folder / "usr/bin");
  std::ofstream(folder / "usr/bin/mpirun") << "#!/bin/sh\n";
  fs::permissions(folder / "usr/bin/mpirun", fs::perms::owner_all);
  fs::create_directory_symlink("usr/bin", folder / "bin");
  EXPECT_EQ(found_in((folder / "bin").string()), folder / "usr/bin/mpirun");
  EXPECT_EQ(found_in((folder / "usr/../bin/").string()), folder / "usr/bin/mpirun");
  fs::remove_all(folder);
}

TEST(Mpirun, PrefersOpenMpiByName) {
  const fs::path folder = fs::canonical(fs::temp_directory_path()) / "mpirun_test";
  fs::create_directories(folder / "a");
  fs::create_directories(folder / "b");
  for (const fs::path& file : {folder / "a/mpirun", folder / "b/mpirun.openmpi"}) {
    std::ofstream(file) << "#!/bin/sh\n";
    fs::permissions(file, fs::perms::owner_all);
  }
  const std::string both = (folder / "a").string() + ":" + (folder / "b").string();
  EXPECT_EQ(found_in(both), folder / "b/mpirun.openmpi");
  EXPECT_EQ(found_in((folder / "a").string()), folder / "a/mpirun");
  EXPECT_EQ(found_in("/nowhere"), std::nullopt);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace longhaul::dist
