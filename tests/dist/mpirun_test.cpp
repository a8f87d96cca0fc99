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

TEST(Mpirun, RespectsOmpNumThreads) {
  const auto variables = mpirun_environment(request_for(3, {}), {"OMP_NUM_THREADS=7"});
  EXPECT_THAT(variables, Contains("OMP_NUM_THREADS=7"));
  EXPECT_THAT(variables, Not(Contains("OMP_NUM_THREADS=2")));
}

TEST(Mpirun, PrefersOpenMpiByName) {
  const fs::path folder = fs::temp_directory_path() / fs::path("mpirun_test");
  fs::create_directories(folder / "a");
  fs::create_directories(folder / "b");
  for (const fs::path& file : {folder / "a/mpirun", folder / "b/mpirun.openmpi"}) {
    std::ofstream(file) << "#!/bin/sh\n";
    fs::permissions(file, fs::perms::owner_all);
  }
  const auto path_is = [](const std::string& path) {
    return [path](const std::string& name) {
      return name == "PATH" ? std::optional<std::string>(path) : std::nullopt;
    };
  };
  const std::string both = (folder / "a").string() + ":" + (folder / "b").string();
  EXPECT_EQ(find_mpirun(path_is(both)), folder / "b/mpirun.openmpi");
  EXPECT_EQ(find_mpirun(path_is((folder / "a").string())), folder / "a/mpirun");
  EXPECT_EQ(find_mpirun(path_is("/nowhere")), std::nullopt);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace longhaul::dist
