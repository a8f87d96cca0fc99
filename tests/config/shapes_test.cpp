#include "config/shapes.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace longhaul::config {
namespace {

constexpr std::array<Slot, 6> kSlots = {Slot::kInput, Slot::kQkv,      Slot::kAttnOut,
                                        Slot::kLse,   Slot::kResidual, Slot::kGateUp};

std::vector<bool> kept(ActivationPreset preset) {
  std::vector<bool> result;
  for (const Slot slot : kSlots) {
    result.push_back(LayerPolicy{preset, false}.action(slot) == SlotAction::kKeep);
  }
  return result;
}

TEST(LayerPolicy, KeepsWhatEachPresetPromises) {
  //                                                 x     qkv    O      LSE    residual gate/up
  EXPECT_EQ(kept(ActivationPreset::kA), (std::vector<bool>{true, true, true, true, true, true}));
  EXPECT_EQ(kept(ActivationPreset::kB), (std::vector<bool>{true, true, true, true, true, false}));
  EXPECT_EQ(kept(ActivationPreset::kC), (std::vector<bool>{true, false, true, true, false, false}));
  EXPECT_EQ(kept(ActivationPreset::kD),
            (std::vector<bool>{true, false, false, false, false, false}));
  EXPECT_EQ(kept(ActivationPreset::kD2),
            (std::vector<bool>{true, false, false, false, false, false}));
}

TEST(LayerPolicy, OffloadMovesExactlyWhatWouldBeKept) {
  for (const auto preset : {ActivationPreset::kA, ActivationPreset::kB, ActivationPreset::kC,
                            ActivationPreset::kD, ActivationPreset::kD2}) {
    for (const Slot slot : kSlots) {
      const bool keeps = LayerPolicy{preset, false}.action(slot) == SlotAction::kKeep;
      EXPECT_EQ((LayerPolicy{preset, true}.action(slot)),
                keeps ? SlotAction::kHost : SlotAction::kRerun);
    }
  }
}

TEST(RebuiltInputs, PairsFromTheFirstLayerOfEachRunAboveTheFrozenOnes) {
  const LayerPolicy d{ActivationPreset::kD, false};
  const LayerPolicy d2{ActivationPreset::kD2, false};
  const std::vector<LayerPolicy> policies = {d, d2, d2, d2, d, d2, d2, d2, d2};
  EXPECT_EQ(rebuilt_inputs(policies, 0),
            (std::vector<bool>{false, false, true, false, false, false, true, false, true}));
  // Layer 6 is the lowest with a backward pass: it keeps its input.
  EXPECT_EQ(rebuilt_inputs(policies, 6),
            (std::vector<bool>{false, false, false, false, false, false, false, true, false}));
  EXPECT_EQ(rebuilt_inputs(policies, 9), std::vector<bool>(9, false));
}

TEST(LowestBackwardLayer, IsTheLowestWithATrainedParameter) {
  const ParamSpec embedding{.kind = ParamKind::kEmbedding};
  const ParamSpec second{.layer = 2};
  const ParamSpec third{.layer = 3, .trainable = true};
  const ParamSpec head{.kind = ParamKind::kHead, .trainable = true};
  EXPECT_EQ(lowest_backward_layer(std::vector{embedding, second, third, head}, 5), 3);
  EXPECT_EQ(lowest_backward_layer(std::vector{embedding, second, head}, 5), 5);
  ParamSpec trained = embedding;
  trained.trainable = true;
  EXPECT_EQ(lowest_backward_layer(std::vector{trained, third}, 5), 0);
}

TEST(LogitsTile, HoldsSixtyFourMebibytesWithinItsLimits) {
  EXPECT_EQ(logits_tile_rows(49152, 4), 341);
  EXPECT_EQ(logits_tile_rows(1 << 20, 4), 16);
  EXPECT_EQ(logits_tile_rows(1 << 24, 4), 16);
  EXPECT_EQ(logits_tile_rows(100, 2), 4096);
}

TEST(LoraSpec, ScalesByRankOrItsRoot) {
  EXPECT_DOUBLE_EQ((LoraSpec{.rank = 16, .alpha = 32}.scale()), 2.0);
  EXPECT_DOUBLE_EQ((LoraSpec{.rank = 16, .alpha = 32, .rslora = true}.scale()), 8.0);
}

TEST(Mesh, SpRanksOfOneGroupAreConsecutive) {
  const Mesh mesh{.dp = 2, .sp = 3};
  EXPECT_EQ(mesh.ranks(), 6);
  EXPECT_EQ(mesh.dp_rank(2), 0);
  EXPECT_EQ(mesh.dp_rank(3), 1);
  EXPECT_EQ(mesh.sp_rank(5), 2);
}

}  // namespace
}  // namespace longhaul::config
