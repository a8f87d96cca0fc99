#include "plan/layer_time.h"

#include <gtest/gtest.h>

#include <vector>

#include "plan/plan_cases.h"

namespace longhaul {
namespace {

using config::ActivationPreset;

constexpr std::int64_t kRow = 32768;

class LayerTime : public ::testing::Test {
 protected:
  [[nodiscard]] plan::LayerTime time(double dropout = 0) const {
    return {shapes_.front(), {.sizes = &sizes_, .rates = &rates_, .lora_dropout = dropout}};
  }

  config::ModelConfig model_ = testing::qwen_7b();
  std::vector<config::ParamSpec> registry_ = testing::lora_registry(model_);
  std::vector<plan::LayerShape> shapes_ = plan::layer_shapes(registry_, model_.num_layers);
  plan::Sizes sizes_ = plan::sizes_of({.model = &model_,
                                       .registry = registry_,
                                       .dtype = base::Dtype::kBFloat16,
                                       .mesh = {},
                                       .row_tokens = kRow,
                                       .row_targets = kRow,
                                       .on_gpu = true,
                                       .attended_length = kRow});
  plan::DeviceRates rates_;
};

TEST_F(LayerTime, ReadsTheProductsOfALayerFromTheParameters) {
  ASSERT_EQ(shapes_.size(), 28U);
  for (const plan::LayerShape& layer : shapes_) {
    EXPECT_EQ(layer.attention_in.elements(), 3584 * 4608);
    EXPECT_EQ(layer.attention_out.elements(), 3584 * 3584);
    EXPECT_EQ(layer.mlp_in.elements(), 3584 * 37888);
    EXPECT_EQ(layer.mlp_down.elements(), 3584 * 18944);
    EXPECT_EQ(layer.attention_in.lora_columns, 48);
    EXPECT_EQ(layer.attention_out.lora_columns, 16);
    EXPECT_EQ(layer.mlp_in.lora_columns, 32);
    EXPECT_EQ(layer.mlp_down.lora_columns, 16);
    EXPECT_EQ(layer.mlp_down.trained_elements, 0);
  }
  const std::vector<config::ParamSpec> full = config::build_registry(model_, {.full = true});
  const plan::LayerShape layer = plan::layer_shapes(full, 28).back();
  EXPECT_EQ(layer.attention_in.trained_elements, 3584 * 4608);
  EXPECT_EQ(layer.attention_in.lora_columns, 0);
}

TEST_F(LayerTime, TakesTheTimeOfItsFlops) {
  // 233,046,016 weights, which also come from memory once; half of 4·28·128 FLOPs per token and
  // token seen, of which each costs as if it saw 572 more.
  const double products = 2.0 * 233'046'016 * kRow / 678e12 + 2.0 * 233'046'016 / 4.06e12;
  const double attention = 2.0 * 3584 * kRow * (kRow + 572.0) / 618e12;
  const plan::StepSeconds forward = time().forward();
  EXPECT_NEAR(forward.products, products, 1e-9);
  EXPECT_NEAR(forward.attention, attention, 1e-9);
  EXPECT_EQ(forward.exchanges, 0);
  const plan::StepSeconds backward = time().backward();
  EXPECT_NEAR(backward.products, products, 1e-9);  // input gradients; adapters' are traffic
  EXPECT_NEAR(backward.attention, 5.0 * 3584 * kRow * (kRow + 846.0) / 544e12, 1e-9);
}

TEST_F(LayerTime, RunsAgainWhatAPolicyDoesNotKeep) {
  const auto rerun = [&](ActivationPreset preset) { return time().rerun({preset, false}); };
  EXPECT_EQ(rerun(ActivationPreset::kA).total(), 0);
  EXPECT_EQ(rerun(ActivationPreset::kB).total(), 0);
  const plan::StepSeconds c = rerun(ActivationPreset::kC);
  EXPECT_EQ(c.attention, 0);
  const double weights = 3584 * (4608 + 3584);
  EXPECT_NEAR(c.products, 2 * weights * kRow / 678e12 + 2 * weights / 4.06e12, 1e-9);
  const plan::StepSeconds d = rerun(ActivationPreset::kD);
  EXPECT_DOUBLE_EQ(d.products, c.products);
  EXPECT_DOUBLE_EQ(d.attention, time().forward().attention);
}

TEST_F(LayerTime, TilesBringTheWeightsOfTheMlpFromMemoryMoreOften) {
  const plan::LayerTime tiled(
      shapes_.front(),
      {.sizes = &sizes_, .rates = &rates_, .form = {.attention_groups = 4, .mlp_tile_rows = 2048}});
  const double once = 2.0 * (3584.0 * 37888 + 18944.0 * 3584) / 4.06e12;
  EXPECT_NEAR(tiled.forward().products - time().forward().products, 15 * once, 1e-9);
}

TEST_F(LayerTime, DropoutTakesAdaptersOutOfTheBaseProducts) {
  EXPECT_GT(time(0.05).forward().traffic, time().forward().traffic);
  EXPECT_GT(time(0.05).backward().traffic, time().backward().traffic);
  EXPECT_DOUBLE_EQ(time(0.05).forward().products, time().forward().products);
}

/// Of so many LoRA columns that kernels do not mask in the products: copies.
TEST_F(LayerTime, MaskedCopiesTakeLonger) {
  const auto cost = [&](std::int64_t columns) {
    shapes_.front().attention_in.lora_columns = columns;
    return time(0.05).forward().traffic + time(0.05).backward().traffic;
  };
  const double pass = 2.0 * 3584 * kRow / 4.06e12;
  EXPECT_NEAR(cost(72) - cost(64), 3 * pass, 1e-9);
}

TEST_F(LayerTime, PartsAddUp) {
  plan::StepSeconds sum{.products = 1, .exchanges = 2};
  sum += 2.0 * plan::StepSeconds{.products = 3, .copies = 1};
  EXPECT_DOUBLE_EQ(sum.products, 7);
  EXPECT_DOUBLE_EQ(sum.copies, 2);
  EXPECT_DOUBLE_EQ(sum.total(), 7 / 0.96 + 2 + 2);
}

}  // namespace
}  // namespace longhaul
