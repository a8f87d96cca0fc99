#include "config/name_regex.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::config {
namespace {

TEST(NameRegex, FullMatchCoversTheWholeTextAndSearchAnyPart) {
  const NameRegex regex("q_proj|k", "--x");
  EXPECT_TRUE(regex.full_match("q_proj"));
  EXPECT_TRUE(regex.full_match("k"));
  EXPECT_FALSE(regex.full_match("k_proj"));
  EXPECT_TRUE(regex.search("a.k_proj"));
  EXPECT_FALSE(regex.search("v_proj"));
}

TEST(NameRegex, ReportsPatternsThatAreInvalidOrTooSlow) {
  EXPECT_THROW(NameRegex("(", "--x"), base::UserError);
  EXPECT_THROW(NameRegex("a\xff", "--x"), base::UserError);
  const NameRegex slow("(a+)+$", "--x");
  EXPECT_THROW(static_cast<void>(slow.full_match(std::string(60, 'a') + "b")), base::UserError);
}

TEST(NameRegex, TellsExpressionsFromNames) {
  EXPECT_FALSE(looks_like_regex("model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(looks_like_regex("all-linear"));
  EXPECT_TRUE(looks_like_regex("q_proj|v_proj"));
  EXPECT_TRUE(looks_like_regex(".*q_proj"));
}

}  // namespace
}  // namespace longhaul::config
