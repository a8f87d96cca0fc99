#include "base/program.h"

#include <gtest/gtest.h>

namespace longhaul::base {
namespace {

TEST(Program, IsTheFileOfThisTest) {
  EXPECT_EQ(program_file().filename(), "base_test");
  EXPECT_TRUE(std::filesystem::equivalent(program_file(), "/proc/self/exe"));
  EXPECT_EQ(program_folder() / program_file().filename(), program_file());
}

}  // namespace
}  // namespace longhaul::base
