#include "plan/layer_bytes.h"

#include <gtest/gtest.h>

#include "plan/plan_cases.h"

namespace longhaul {
namespace {

using config::ActivationPreset;
using config::SlotAction;

constexpr std::int64_t kTokens = 4096;

plan::Sizes sizes(bool on_gpu, std::int64_t sp = 1) {
  static const config::ModelConfig model = testing::qwen_7b();
  return plan::sizes_of({.model = &model,
                         .registry = {},
                         .dtype = base::Dtype::kBFloat16,
                         .mesh = {.dp = 1, .sp = sp},
                         .row_tokens = kTokens,
                         .row_targets = kTokens,
                         .on_gpu = on_gpu,
                         .attended_length = 1e9});
}

TEST(LayerBytes, CountsSlotsByWhatHappensToThem) {
  const plan::Sizes s = sizes(true);
  // By hand, per token: x 7168; q,k,v 9216; O 7168; LSE 112; residual 7168; gate, up 75776.
  const auto bytes = [&](ActivationPreset preset, bool offload, SlotAction action) {
    return plan::slots_with(s, {preset, offload}, action, true) / kTokens;
  };
  EXPECT_EQ(bytes(ActivationPreset::kB, false, SlotAction::kKeep), 3 * 7168 + 9216 + 112);
  EXPECT_EQ(bytes(ActivationPreset::kB, false, SlotAction::kHost), 0);
  EXPECT_EQ(bytes(ActivationPreset::kB, true, SlotAction::kHost), 3 * 7168 + 9216 + 112);
  EXPECT_EQ(bytes(ActivationPreset::kB, true, SlotAction::kRerun), 75776);
  EXPECT_EQ(plan::slots_with(s, {ActivationPreset::kD2, true}, SlotAction::kHost, false), 0);
}

TEST(LayerBytes, TheMlpsStageIsTheLargestWhenItIsWhole) {
  const plan::Sizes s = sizes(true);
  // All slots, silu(gate)·up, d(y) and d(residual), whether gate and up are kept or re-run.
  for (const ActivationPreset preset : {ActivationPreset::kA, ActivationPreset::kD}) {
    EXPECT_EQ(plan::backward_bytes(s, {preset, false}, {}) / kTokens,
              3 * 7168 + 9216 + 112 + 75776 + 37888 + 2 * 7168);
  }
}

TEST(LayerBytes, AttentionsStageIsTheLargestBesideATiledMlp) {
  const plan::Sizes s = sizes(true);
  // x; q,k,v; O; LSE · d(residual), d(O) · fp32 dQ, dK and dV for every query head, and
  // the kernel's results: 37.9 KB, which was measured as 38.0.
  const std::int64_t kernel = 28 * 128 * (4 + 2 + 2) + 9216;
  const std::int64_t rest = 2 * 7168 + 9216 + 112 + 2 * 7168;
  const auto bytes = [&](std::int64_t groups) {
    return plan::backward_bytes(s, {ActivationPreset::kD, false}, {groups, 16}) / kTokens;
  };
  EXPECT_EQ(bytes(1), rest + kernel);
  EXPECT_EQ(bytes(2), rest + kernel / 2);
  EXPECT_EQ(bytes(4), rest + kernel / 4);
}

TEST(LayerBytes, AKeptGateAndUpAreWholeInAnyTiling) {
  const plan::Sizes s = sizes(true);
  const auto bytes = [&](ActivationPreset preset) {
    return plan::backward_bytes(s, {preset, false}, {4, 1024});
  };
  // Tiles of a quarter of the row.
  EXPECT_EQ(bytes(ActivationPreset::kA) / kTokens,
            3 * 7168 + 9216 + 112 + 75776 + 37888 / 4 + 2 * 7168);
  EXPECT_EQ(bytes(ActivationPreset::kB) / kTokens,
            3 * 7168 + 9216 + 112 + 75776 / 4 + 37888 / 4 + 2 * 7168);
}

TEST(LayerBytes, TwoRanksHoldHalf) {
  EXPECT_EQ(plan::slot_bytes(sizes(true, 2), config::Slot::kQkv) * 2,
            plan::slot_bytes(sizes(true), config::Slot::kQkv));
}

}  // namespace
}  // namespace longhaul
