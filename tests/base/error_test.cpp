#include "base/error.h"

#include <gtest/gtest.h>

#include "base/scratch.h"

namespace longhaul::base {
namespace {

TEST(Problem, LeavesOutEmptyParts) {
  EXPECT_EQ((Problem{.where = "a", .what = "b"}).line(), "a: b");
  EXPECT_EQ((Problem{.where = "", .what = "b"}).line(), "b");
  EXPECT_EQ((Problem{.where = "a", .what = "b", .got = "1"}).line(), "a: b (got 1)");
  EXPECT_EQ((Problem{.where = "a", .what = "b", .expected = "2"}).line(), "a: b (expected 2)");
  EXPECT_EQ(
      (Problem{.where = "--x", .what = "b", .got = "1", .expected = "2", .hint = "Do c"}).line(),
      "--x: b (got 1, expected 2). Do c");
}

TEST(Problem, StaysOneLineWhateverTheForeignTextHolds) {
  const std::string line =
      Problem{.where = "f\n", .what = "\r\t", .got = std::string("\x1b[31m\0\x7f", 7)}.line();
  EXPECT_EQ(line, "f\\n: \\r\\t (got \\x1b[31m\\x00\\x7f)");
}

TEST(Problem, KeepsUtf8TextAsItIs) {
  EXPECT_EQ((Problem{.where = "文件", .what = "é"}).line(), "文件: é");
}

TEST(Problem, ShowsBytesThatAreNoTextAsNumbers) {
  EXPECT_EQ((Problem{.where = "文\xff", .what = "\xc3(\xed\xa0\x80", .got = "é\xe6\x96"}).line(),
            "文\\xff: \\xc3(\\xed\\xa0\\x80 (got é\\xe6\\x96)");
}

TEST(Error, HoldsEveryProblemAndJoinsTheirLines) {
  const UserError error(
      std::vector<Problem>{{.where = "a", .what = "b"}, {.where = "c", .what = "d"}});
  EXPECT_STREQ(error.what(), "a: b\nc: d");
  ASSERT_EQ(error.problems().size(), 2U);
  EXPECT_EQ(error.problems()[1].where, "c");
}

TEST(Error, KindsAreToldApartByType) {
  EXPECT_THROW(throw UserError(Problem{.where = "a", .what = "b"}), UserError);
  EXPECT_THROW(throw SystemError(Problem{.where = "a", .what = "b"}), SystemError);
  const auto caught_as_user = [] {
    try {
      throw SystemError(Problem{.where = "a", .what = "b"});
    } catch (const UserError&) {
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_FALSE(caught_as_user());
}

TEST(Assertion, NamesThePlaceAndTheCondition) {
  const std::string message =
      test::message_of<InternalError>([] { LONGHAUL_ASSERT(1 + 1 == 3, "sums are right"); });
  EXPECT_NE(message.find("error_test.cpp:"), std::string::npos) << message;
  EXPECT_NE(message.find("sums are right (1 + 1 == 3)"), std::string::npos) << message;
}

TEST(Assertion, DoesNothingWhenTheConditionHolds) {
  EXPECT_NO_THROW(LONGHAUL_ASSERT(true, "never"));
}

}  // namespace
}  // namespace longhaul::base
