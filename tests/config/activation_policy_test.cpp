#include "config/activation_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::config {
namespace {

using testing::HasSubstr;

constexpr LayerPolicy kKeepAll{ActivationPreset::kA, false};
constexpr LayerPolicy kOffloadC{ActivationPreset::kC, true};

TEST(ActivationPolicy, ReadsPresetsAndTheirOtherNames) {
  const auto one = [](std::string_view text) {
    return parse_activation_policy(text).value().at(0).policy;
  };
  EXPECT_EQ(one("A"), kKeepAll);
  EXPECT_EQ(one("keep"), kKeepAll);
  EXPECT_EQ(one("checkpoint"), (LayerPolicy{ActivationPreset::kD, false}));
  EXPECT_EQ(one("offload"), (LayerPolicy{ActivationPreset::kD, true}));
  EXPECT_EQ(one("C+offload"), kOffloadC);
  EXPECT_EQ(one("D2"), (LayerPolicy{ActivationPreset::kD2, false}));
  EXPECT_TRUE(parse_activation_policy("auto").value().empty());
}

TEST(ActivationPolicy, AMixGivesEveryLayerItsPolicy) {
  const auto layers = activation_policy_of_layers("2xA,3xC+offload", 5);
  EXPECT_EQ(layers,
            (std::vector<LayerPolicy>{kKeepAll, kKeepAll, kOffloadC, kOffloadC, kOffloadC}));
  EXPECT_EQ(activation_policy_of_layers("B", 3).size(), 3U);
  EXPECT_TRUE(activation_policy_of_layers("auto", 3).empty());
}

TEST(ActivationPolicy, RefusesWhatIsNoPolicyOrDoesNotAddUp) {
  for (const char* text : {"", "E", "a", "A+", "A+offload+offload", "offload+offload", "0xA", "xA",
                           "2xA,", "-1xA", "2x", ",", "2xA,B", "99999999999999999999xA"}) {
    EXPECT_FALSE(parse_activation_policy(text).has_value()) << text;
    EXPECT_THROW(activation_policy_of_layers(text, 4), base::UserError) << text;
  }
  try {
    activation_policy_of_layers("2xA,3xC", 4);
    FAIL();
  } catch (const base::UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("got 2xA,3xC (5 layers), expected 4 layers"));
  }
}

}  // namespace
}  // namespace longhaul::config
