// The walker with slots on the host: the same bits as with slots on the device, for every preset,
// for mixes, and from step to step.
#include "model/slot_offload.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/activation_policy.h"
#include "model/layout_runner.h"

namespace longhaul {
namespace {

using testing::Tuning;

constexpr std::int64_t kLayers = 5;

std::vector<data::PackedBatch> rows(const std::string& name) {
  return testing::flatten(testing::composite_step(testing::tiny_model(name).vocab_size));
}

class SlotOffload : public ::testing::TestWithParam<std::string> {};

TEST_P(SlotOffload, GivesTheSameBitsForEveryPresetAndMix) {
  for (const bool slabs : {false, true}) {
    testing::StepOptions options;
    options.num_layers = kLayers;
    options.slabs = slabs;
    options.lora_dropout = 0.3;
    const auto run = [&](const std::string& policy) {
      options.layer_policies = config::activation_policy_of_layers(policy, kLayers);
      return testing::run_step(GetParam(), Tuning::kLora, {.sp = slabs ? 1 : 2}, rows(GetParam()),
                               options);
    };
    const testing::StepResult keep = run("A");
    for (const char* policy :
         {"A+offload", "B+offload", "C+offload", "D+offload", "D2+offload", "1xD,4xD2+offload",
          "1xA+offload,1xB,1xD2+offload,1xD2,1xC+offload"}) {
      const testing::StepResult other = run(policy);
      EXPECT_EQ(other.loss_sum, keep.loss_sum) << policy;
      for (const auto& [param, gradient] : keep.gradients) {
        EXPECT_TRUE(gradient.equal(other.gradients.at(param))) << param << " under " << policy;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SlotOffload, ::testing::Values("llama", "qwen3", "smol"),
                         [](const auto& test) { return test.param; });

/// Slots of a layer whose tensors are named by their first element.
model::LayerSlots filled(float value) {
  model::LayerSlots slots;
  float next = value;
  for (at::Tensor* tensor :
       {&slots.input, &slots.attention.qkv, &slots.attention.out, &slots.attention.lse,
        &slots.residual, &slots.mlp.gate_up, &slots.u_attention_in, &slots.mlp.u_down}) {
    *tensor = at::full({2, 3}, next++);
  }
  return slots;
}

TEST(SlotOffloadOrder, MovesTheBigSlotsOfOffloadedLayersOnly) {
  const auto policies = config::activation_policy_of_layers("1xA+offload,1xA,1xC+offload", 3);
  model::SlotOffload offload(policies, at::kCPU, {});
  std::vector<model::LayerSlots> slots;
  offload.begin(2);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    offload.before_layer();
    slots.push_back(filled(static_cast<float>(10 * layer)));
    offload.after_layer(layer, slots.back());
  }
  offload.before_layer();
  EXPECT_FALSE(slots[0].input.defined() || slots[0].mlp.gate_up.defined());
  EXPECT_TRUE(slots[0].u_attention_in.defined() && slots[0].mlp.u_down.defined());
  EXPECT_TRUE(slots[1].input.defined() && slots[1].mlp.gate_up.defined());
  EXPECT_FALSE(slots[2].input.defined() || slots[2].attention.lse.defined());
  EXPECT_TRUE(slots[2].mlp.gate_up.defined());  // its policy re-runs it: nobody moves it
  EXPECT_GT(offload.host_bytes(), 0);
  for (std::int64_t layer = 2; layer >= 0; --layer) {
    model::LayerSlots& mine = slots[static_cast<std::size_t>(layer)];
    offload.bring_back(layer, mine);
    offload.bring_back(layer, mine);  // a second time is nothing
    offload.prefetch_below(layer);
    const model::LayerSlots want = filled(static_cast<float>(10 * layer));
    EXPECT_TRUE(mine.input.equal(want.input));
    EXPECT_TRUE(mine.attention.out.equal(want.attention.out));
    EXPECT_TRUE(mine.attention.lse.equal(want.attention.lse));
    EXPECT_TRUE(mine.mlp.gate_up.equal(want.mlp.gate_up));
  }
}

TEST(SlotOffloadOrder, KeepsItsMemoryFromRowToRow) {
  const auto policies = config::activation_policy_of_layers("D+offload", 3);
  model::SlotOffload offload(policies, at::kCPU, {.planned_bytes = 1, .largest_row = 2});
  std::int64_t bytes = 0;
  for (int row = 0; row < 3; ++row) {
    offload.begin(2);
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      model::LayerSlots slots = filled(1);
      offload.before_layer();
      offload.after_layer(layer, slots);
    }
    EXPECT_TRUE(row == 0 || offload.host_bytes() == bytes);
    bytes = offload.host_bytes();
  }
}

TEST(SlotOffloadOrder, HoldsNothingWhenNoLayerOffloads) {
  const std::vector<config::LayerPolicy> policies(2);
  model::SlotOffload offload(policies, at::kCPU, {});
  model::LayerSlots slots = filled(1);
  offload.begin(2);
  offload.before_layer();
  offload.after_layer(0, slots);
  offload.prefetch_below(2);
  offload.bring_back(0, slots);
  EXPECT_TRUE(slots.input.defined());
  EXPECT_EQ(offload.host_bytes(), 0);
}

}  // namespace
}  // namespace longhaul
