#include "config/model_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Verdict {
  std::vector<std::string> refused{};
  std::vector<std::string> unknown{};
};

Verdict judge(const base::Json& object) {
  std::vector<base::Problem> problems;
  const std::map<std::string, std::size_t> lines;
  const JsonFields fields(object, "c", lines, problems);
  refuse_unbuilt_features(fields);
  Verdict verdict;
  for (const base::Problem& problem : problems) {
    verdict.refused.push_back(problem.line());
  }
  verdict.unknown = unknown_keys(fields);
  return verdict;
}

TEST(ModelRules, ReadAndHarmlessKeysPass) {
  const Verdict verdict = judge({{"hidden_size", 8},
                                 {"transformers_version", "5.0"},
                                 {"use_cache", true},
                                 {"initializer_range", 0.02},
                                 {"_name_or_path", "x"},
                                 {"id2label", {{"0", "A"}}}});
  EXPECT_TRUE(verdict.refused.empty());
  EXPECT_TRUE(verdict.unknown.empty());
}

TEST(ModelRules, NeutralValuesOfRefusedKeysPass) {
  const Verdict verdict = judge({{"num_experts", 0},
                                 {"attn_logit_softcapping", nullptr},
                                 {"use_qk_norm", false},
                                 {"quantization_config", base::Json::object()},
                                 {"pruned_heads", base::Json::object()},
                                 {"residual_multiplier", 1},
                                 {"attention_dropout", 0.0}});
  EXPECT_TRUE(verdict.refused.empty());
  EXPECT_TRUE(verdict.unknown.empty());
}

TEST(ModelRules, NamesThatSpeakOfAnotherArchitectureAreRefusedEvenWhenUnheardOf) {
  EXPECT_THAT(judge({{"n_group_experts_v9", 4}}).refused,
              ElementsAre(HasSubstr("mixture of experts not available (got 4)")));
  EXPECT_THAT(judge({{"router_softcap_v2", 3.5}}).refused, ElementsAre(HasSubstr("soft caps")));
  EXPECT_THAT(judge({{"speech_config", {{"a", 1}}}}).refused,
              ElementsAre(HasSubstr("nested parts")));
  EXPECT_THAT(judge({{"residual_multiplier", 0.5}}).refused,
              ElementsAre(HasSubstr("scaled activations")));
  EXPECT_THAT(judge({{"embedding_dropout", 0.1}}).refused, ElementsAre(HasSubstr("dropout")));
}

TEST(ModelRules, OtherUnknownKeysAreNotedUnlessTheySayNothing) {
  const Verdict verdict =
      judge({{"colour", "blue"}, {"flag", false}, {"nothing", nullptr}, {"count", 0}});
  EXPECT_TRUE(verdict.refused.empty());
  EXPECT_THAT(verdict.unknown, ElementsAre("c: colour"));
}

}  // namespace
}  // namespace longhaul::config
