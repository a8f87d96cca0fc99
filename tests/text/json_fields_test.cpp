#include "text/json_fields.h"

#include "text/expect_refused.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(JsonFields, ReadsTypedValues) {
  const base::Json object = {{"flag", true}, {"name", "x"}, {"id", 7}, {"none", nullptr}};
  const JsonFields fields(object, "here");
  EXPECT_TRUE(fields.boolean("flag"));
  EXPECT_FALSE(fields.boolean("absent", false));
  EXPECT_FALSE(fields.boolean("none", false));
  EXPECT_EQ(fields.string("name"), "x");
  EXPECT_EQ(fields.optional_string("none"), std::nullopt);
  EXPECT_EQ(fields.id("id", 8), 7);
}

TEST(JsonFields, RefusalsNamePlaceAndKey) {
  const base::Json object = {{"flag", "yes"}, {"id", 8}, {"text", 3}};
  const JsonFields fields(object, "here");
  EXPECT_THAT(refusal([&] { (void)fields.boolean("flag"); }),
              AllOf(HasSubstr("here: "), HasSubstr("'flag'"), HasSubstr("\"yes\"")));
  EXPECT_THAT(refusal([&] { (void)fields.boolean("gone"); }), HasSubstr("'gone' is missing"));
  EXPECT_THAT(refusal([&] { (void)fields.id("id", 8); }), HasSubstr("0 to 7"));
  EXPECT_THAT(refusal([&] { (void)fields.string("text"); }), HasSubstr("a string"));
  EXPECT_THAT(refusal([&] { fields.allow_only({"flag", "id"}); }), HasSubstr("'text'"));
  EXPECT_THAT(refusal([] { JsonFields(base::Json::array(), "there"); }), HasSubstr("there: "));
}

TEST(JsonFields, IdsAreWholeNumbersInRange) {
  EXPECT_EQ(as_id(0, 10), 0);
  EXPECT_EQ(as_id(9, 10), 9);
  for (const base::Json& bad :
       {base::Json(10), base::Json(-1), base::Json(1.0), base::Json("1"), base::Json(nullptr),
        base::Json(UINT64_MAX), base::Json(INT64_MIN), base::Json(true)}) {
    EXPECT_EQ(as_id(bad, 10), std::nullopt) << bad.dump();
  }
}

TEST(JsonFields, LongValuesAreShownShort) {
  EXPECT_EQ(shown(base::Json::array()), "a list");
  EXPECT_EQ(shown(base::Json::object()), "an object");
  EXPECT_LT(shown(std::string(1000, 'x')).size(), 80U);
}

}  // namespace
}  // namespace longhaul::text
