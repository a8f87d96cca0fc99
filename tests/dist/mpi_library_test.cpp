#include "dist/mpi_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/probe_run.h"

namespace longhaul::dist {
namespace {

TEST(MpiLibrary, IsFoundWhereTheBuildPutsItAndSaysItsVersion) {
  if (!dist_test::has_mpi()) {
    EXPECT_FALSE(find_mpi_library());
    EXPECT_FALSE(mpi_version());
    return;
  }
  ASSERT_TRUE(find_mpi_library());
  EXPECT_EQ(find_mpi_library()->filename(), "liblonghaul_mpi.so");
  EXPECT_THAT(mpi_version().value_or(""), testing::StartsWith("Open MPI v"));
}

}  // namespace
}  // namespace longhaul::dist
