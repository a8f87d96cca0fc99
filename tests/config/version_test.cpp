#include "config/version.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace longhaul::config {
namespace {

TEST(Version, HasThreeNumbers) {
  EXPECT_TRUE(
      std::regex_match(std::string(program_version()), std::regex("[0-9]+[.][0-9]+[.][0-9]+")));
}

}  // namespace
}  // namespace longhaul::config
