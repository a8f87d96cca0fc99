#include "plan/run_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/named_models.h"
#include "metrics/rates.h"
#include "plan/plan_cases.h"

namespace longhaul {
namespace {

class RunPlan : public ::testing::Test {
 protected:
  RunPlan() {
    config_.row_length = 32768;
    config_.memory.activation_policy = "auto";
  }
  [[nodiscard]] plan::RunPlanRequest request(std::int64_t tokens) const {
    return {.config = &config_,
            .model = &model_,
            .registry = registry_,
            .dtype = base::Dtype::kBFloat16,
            .data = {.largest_row = tokens,
                     .step_tokens = tokens,
                     .attended_length = static_cast<double>(tokens)},
            .device = *plan::find_device("h200")};
  }

  config::Config config_;
  config::ModelConfig model_ = testing::qwen_7b();
  std::vector<config::ParamSpec> registry_ = testing::lora_registry(model_);
};

TEST_F(RunPlan, LongestRowFitsAndTheNextDoesNot) {
  const std::int64_t longest = plan::make_run_plan(request(32768)).longest_row;
  ASSERT_GT(longest, 32768);
  EXPECT_TRUE(plan::make_run_plan(request(longest)).memory.fits);
  EXPECT_FALSE(plan::make_run_plan(request(longest + 256)).memory.fits);
}

TEST_F(RunPlan, TimeFollowsTheFlopsFormula) {
  config_.memory.activation_policy = "A";
  const plan::RunPlan plan = plan::make_run_plan(request(32768));
  // 4 · 7.0697e9 + 6 · 40.37e6 + 602,112 · 32768 FLOPs per token at 0.44 · 989 TFLOP/s.
  const double flops = 4 * 7.0697e9 + 6 * 40.370176e6 + 602112.0 * 32768;
  EXPECT_NEAR(plan.tokens_per_second, 0.44 * 989e12 / flops, 0.002 * plan.tokens_per_second);
  EXPECT_NEAR(plan.step_seconds, 32768 / plan.tokens_per_second, 1e-9);
}

/// Matrix-multiplied weights and the attention term of published models.
TEST(ModelSizes, GiveThePublishedWeightsAndAttentionTerms) {
  struct Published {
    const char* name;
    double weights;
    std::int64_t attention;
  };
  for (const Published& model :
       {Published{"qwen2.5-7b", 7.070e9, 602'112}, Published{"llama3.1-8b", 7.505e9, 786'432},
        Published{"qwen3-8b", 7.568e9, 884'736}}) {
    const metrics::ModelSizes sizes = plan::model_sizes(*config::find_named_model(model.name));
    EXPECT_NEAR(static_cast<double>(metrics::matrix_weights(sizes)), model.weights, 0.5e6)
        << model.name;
    EXPECT_EQ(metrics::attention_flops_per_length(sizes), model.attention) << model.name;
  }
}

TEST_F(RunPlan, SaysWhatIsShardedAndCountsIt) {
  config_.mesh = {.dp = 1, .sp = 2};
  const auto text = [&] {
    const plan::RunPlan plan = plan::make_run_plan(request(32768));
    std::string lines;
    for (const std::string& line : plan::plan_lines(request(32768), plan)) {
      lines += line + "\n";
    }
    return lines;
  };
  EXPECT_EQ(text().find("sharding: "), std::string::npos);
  EXPECT_NE(text().find("= weights 15.31 GB"), std::string::npos) << text();
  config_.parallel.fsdp = "fsdp2";
  EXPECT_NE(text().find("sharding: frozen weights of the layers over 2 ranks"), std::string::npos);
  EXPECT_NE(text().find("= weights 9.72 GB"), std::string::npos) << text();
}

TEST_F(RunPlan, SaysWhenItDoesNotFitAndWhatWould) {
  plan::RunPlanRequest small = request(2'000'000);
  const plan::RunPlan plan = plan::make_run_plan(small);
  EXPECT_FALSE(plan.memory.fits);
  const std::vector<std::string> lines = plan::plan_lines(small, plan);
  const auto contains = [&](const std::string& text) {
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(contains("DOES NOT FIT"));
  EXPECT_TRUE(contains("longest row that fits"));
  EXPECT_TRUE(contains("unknown without --dataset"));
}

}  // namespace
}  // namespace longhaul
