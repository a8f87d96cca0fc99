// Which layers are gathered when, and what lies in the slabs.
#include "model/sharded_weight_store.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "dist/comm_threads.h"
#include "model/late_side_stream.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using model::Parameters;
using model::Pass;

constexpr double kScale = 2;

/// A model of some layers, cut over the ranks of a world.
struct Subject {
  explicit Subject(dist::Communicator& world, std::int64_t num_layers, bool slabs = true,
                   std::unique_ptr<ops::SideStream> side = nullptr)
      : model(testing::tiny_model("smol")) {
    model.num_layers = num_layers;
    parameters.emplace(
        config::build_registry(model, testing::tiny_tuning(model, testing::Tuning::kLora)),
        at::kFloat, at::kCPU, slabs ? std::optional(kScale) : std::nullopt,
        model::RankShare{world.rank(), world.size()});
    testing::randomise(*parameters, 1);
    store.emplace(model, *parameters, kScale, world, std::move(side));
  }
  /// The same weights as one resident rank has them.
  [[nodiscard]] Parameters whole() const {
    Parameters same(parameters->registry(), at::kFloat, at::kCPU, kScale);
    testing::randomise(same, 1);
    return same;
  }
  config::ModelConfig model;
  std::optional<Parameters> parameters;
  std::optional<model::ShardedWeightStore> store;
};

void on_two_ranks(const std::function<void(dist::Communicator&)>& body) {
  dist::run_ranks(2, body);
}

/// d(x) of the qkv group for some d(y), which reads the whole slab. (libtorch's random numbers come
/// from one generator for all ranks.)
at::Tensor product_of(const model::LayerWeights& weights) {
  const std::int64_t outputs = weights.attention_in->out_features();
  const at::Tensor dy = at::arange(5 * outputs, at::kFloat).sin().view({5, outputs});
  const at::Tensor du = weights.attention_in->lora_gradient(dy);
  const at::Tensor dx = at::empty({5, weights.attention_in->in_features()});
  weights.attention_in->input_gradient(dy, du, std::nullopt, dx);
  return dx;
}

TEST(ShardedWeightStore, KeepsBothLayersAtTheTurnAndGathersOneAhead) {
  on_two_ranks([](dist::Communicator& world) {
    Subject subject(world, 5);
    model::ShardedWeightStore& store = *subject.store;
    const auto gathers_after = [&](std::int64_t layer, Pass pass) {
      static_cast<void>(store.acquire(layer, pass));
      return store.num_gathers();
    };
    const std::vector<std::int64_t> forward = {2, 3, 4, 5, 5};
    for (std::int64_t layer = 0; layer < 5; ++layer) {
      EXPECT_EQ(gathers_after(layer, Pass::kForward), forward[static_cast<std::size_t>(layer)]);
    }
    // 4 and 3 are still there; behind 3 comes 2.
    const std::vector<std::int64_t> backward = {8, 8, 7, 6, 5};
    for (std::int64_t layer = 4; layer >= 0; --layer) {
      EXPECT_EQ(gathers_after(layer, Pass::kBackward), backward[static_cast<std::size_t>(layer)]);
    }
    EXPECT_EQ(gathers_after(0, Pass::kForward), 8) << "0 and 1 are still there";
    EXPECT_EQ(gathers_after(1, Pass::kForward), 9);
  });
}

TEST(ShardedWeightStore, GathersNothingBelowTheLowestTrainedLayerOnTheWayDown) {
  on_two_ranks([](dist::Communicator& world) {
    config::ModelConfig model = testing::tiny_model("smol");
    model.num_layers = 5;
    config::TuningSpec spec;
    spec.lora = config::LoraSpec{.rank = 4, .target_modules = {"model.layers.2.mlp.down_proj"}};
    Parameters parameters(config::build_registry(model, spec), at::kFloat, at::kCPU, std::nullopt,
                          model::RankShare{world.rank(), world.size()});
    testing::randomise(parameters, 1);
    model::ShardedWeightStore store(model, parameters, kScale, world);
    EXPECT_EQ(store.lowest_trained_layer(), 2);
    for (std::int64_t layer = 0; layer < 5; ++layer) {
      static_cast<void>(store.acquire(layer, Pass::kForward));
    }
    for (std::int64_t layer = 4; layer >= 2; --layer) {
      static_cast<void>(store.acquire(layer, Pass::kBackward));
    }
    EXPECT_EQ(store.num_gathers(), 6);
  });
}

TEST(ShardedWeightStore, ALeasedLayerKeepsItsBuffer) {
  on_two_ranks([](dist::Communicator& world) {
    Subject subject(world, 4);
    model::ShardedWeightStore& store = *subject.store;
    static_cast<void>(store.acquire(2, Pass::kForward));
    {
      const model::WeightLease upper = store.acquire(3, Pass::kBackward);
      const at::Tensor before = product_of(*upper);
      const std::int64_t gathers = store.num_gathers();
      // As the second layer of a D2 pair does; layer 1 would take the buffer of layer 3.
      static_cast<void>(store.acquire(2, Pass::kBackward));
      EXPECT_EQ(store.num_gathers(), gathers);
      EXPECT_TRUE(product_of(*upper).equal(before));
      EXPECT_THROW(static_cast<void>(store.acquire(1, Pass::kBackward)), base::InternalError);
    }
    const std::int64_t gathers = store.num_gathers();
    static_cast<void>(store.acquire(2, Pass::kBackward));
    EXPECT_EQ(store.num_gathers(), gathers + 1) << "layer 1, now that 3 is released";
  });
}

TEST(ShardedWeightStore, MultipliesWithTheBitsOfAResidentSlab) {
  on_two_ranks([](dist::Communicator& world) {
    Subject subject(world, 3);
    const Parameters whole = subject.whole();
    model::ResidentWeightStore resident(subject.model, whole, kScale);
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      EXPECT_TRUE(product_of(*subject.store->acquire(layer, Pass::kForward))
                      .equal(product_of(*resident.acquire(layer, Pass::kForward))))
          << layer;
    }
  });
}

TEST(ShardedWeightStore, SeesUpdatedAdaptersInWhatIsStillThere) {
  for (const bool late : {false, true}) {
    on_two_ranks([&](dist::Communicator& world) {
      Subject subject(world, 2, /*slabs=*/true,
                      late ? std::make_unique<testing::LateSideStream>() : nullptr);
      const at::Tensor before = product_of(*subject.store->acquire(0, Pass::kForward));
      const at::Tensor above = product_of(*subject.store->acquire(1, Pass::kForward));
      const std::int64_t gathers = subject.store->num_gathers();
      subject.parameters->flat_masters().mul_(2);
      subject.parameters->refresh_compute();
      Parameters whole = subject.whole();
      whole.flat_masters().mul_(2);
      whole.refresh_compute();
      model::ResidentWeightStore resident(subject.model, whole, kScale);
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        const at::Tensor now = product_of(*subject.store->acquire(layer, Pass::kForward));
        EXPECT_FALSE(now.equal(layer == 0 ? before : above));
        EXPECT_TRUE(now.equal(product_of(*resident.acquire(layer, Pass::kForward))));
      }
      EXPECT_EQ(subject.store->num_gathers(), gathers) << "base weights have not changed";
    });
  }
}

TEST(ShardedWeightStore, KeepsTheEndsAndSmallTensorsWhole) {
  on_two_ranks([](dist::Communicator& world) {
    Subject subject(world, 2, /*slabs=*/false);
    const Parameters& parameters = *subject.parameters;
    EXPECT_EQ(subject.store->ends().embedding.size(0), subject.model.vocab_size);
    const auto lease = subject.store->acquire(1, Pass::kForward);
    EXPECT_EQ(
        lease->input_norm.weight.data_ptr(),
        parameters.compute(parameters.find("model.layers.1.input_layernorm.weight")).data_ptr());
    EXPECT_TRUE(lease->trained());
    EXPECT_EQ(subject.store->lowest_trained_layer(), 0);
  });
}

}  // namespace
}  // namespace longhaul
