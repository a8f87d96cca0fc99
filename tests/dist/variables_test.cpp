#include "dist/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::dist {
namespace {

using testing::ElementsAre;

TEST(Variables, AreSetUnlessTheUserHas) {
  std::vector<std::string> variables{"AB=1", "A=2"};
  set_if_absent(variables, "A", "3");
  set_if_absent(variables, "B", "4");
  EXPECT_THAT(variables, ElementsAre("AB=1", "A=2", "B=4"));
}

TEST(Variables, AreReplacedWholeNamesOnly) {
  std::vector<std::string> variables{"A=1", "AB=2", "A=3"};
  set_always(variables, "A", "4");
  EXPECT_THAT(variables, ElementsAre("AB=2", "A=4"));
}

TEST(Variables, EndWithANullForExec) {
  const std::vector<std::string> texts{"x", ""};
  const std::vector<char*> pointers = pointers_to(texts);
  ASSERT_EQ(pointers.size(), 3U);
  EXPECT_STREQ(pointers[0], "x");
  EXPECT_EQ(pointers[2], nullptr);
}

}  // namespace
}  // namespace longhaul::dist
