#include "train/rank_setup.h"

#include <gtest/gtest.h>

#include <mutex>

#include "base/error.h"
#include "base/scratch.h"
#include "config/named_models.h"
#include "config/shapes.h"
#include "dist/comm_threads.h"

namespace longhaul::train {
namespace {

TEST(RankSetup, SlabsAreForGpusIn16Bits) {
  config::TuningSpec tuning;
  tuning.lora = config::LoraSpec{.rank = 16, .alpha = 32, .dropout = 0};
  const at::Device gpu(at::kCUDA, 0);
  EXPECT_EQ(slab_scale(tuning, base::Dtype::kBFloat16, gpu), 2.0);
  EXPECT_FALSE(slab_scale(tuning, base::Dtype::kFloat32, gpu));
  EXPECT_FALSE(slab_scale(tuning, base::Dtype::kBFloat16, at::kCPU));
  tuning.lora->dropout = 0.1;
  EXPECT_EQ(slab_scale(tuning, base::Dtype::kBFloat16, gpu), 2.0);
  EXPECT_FALSE(slab_scale({.full = true}, base::Dtype::kBFloat16, gpu));
}

class PlanRank : public ::testing::Test {
 protected:
  [[nodiscard]] plan::MemoryPlan plan_with(std::int64_t host_bytes, const std::string& policy,
                                           dist::Communicator& world) const {
    config::Config config;
    config.mesh = {.dp = 1, .sp = world.size()};
    config.launch.local_ranks = world.size();
    config.memory.host_memory_limit_bytes = host_bytes;
    return plan_rank({.config = &config,
                      .model = &model_,
                      .registry = registry_,
                      .dtype = base::Dtype::kFloat32,
                      .device = at::kCPU,
                      .activation_policy = policy,
                      .row_tokens = 4096,
                      .attended_length = 4096},
                     world);
  }

  config::ModelConfig model_ = *config::find_named_model("tiny");
  std::vector<config::ParamSpec> registry_ =
      config::build_registry(model_, config::TuningSpec{.full = true});
};

TEST_F(PlanRank, TheRankWithLeastMemoryDecidesForAll) {
  std::mutex mutex;
  std::vector<std::string> choices(2);
  std::string alone_rich;
  dist::run_ranks(1, [&](dist::Communicator& world) {
    alone_rich = plan::choice_text(plan_with(std::int64_t{8} << 30, "auto", world));
  });
  dist::run_ranks(2, [&](dist::Communicator& world) {
    // 100 MiB each would not do; the other rank has plenty.
    const std::int64_t host = world.rank() == 1 ? std::int64_t{200} << 20 : std::int64_t{16} << 30;
    const std::string choice = plan::choice_text(plan_with(host, "auto", world));
    const std::lock_guard lock(mutex);
    choices[static_cast<std::size_t>(world.rank())] = choice;
  });
  EXPECT_EQ(alone_rich, "2xA");
  EXPECT_EQ(choices[0], choices[1]);
  EXPECT_NE(choices[0], "2xA");
}

TEST_F(PlanRank, OffloadMustFitTheHostsShare) {
  dist::run_ranks(1, [&](dist::Communicator& world) {
    const std::string error = test::message_of<base::SystemError>(
        [&] { static_cast<void>(plan_with(std::int64_t{1} << 20, "A+offload", world)); });
    EXPECT_NE(error.find("offloaded activations need"), std::string::npos) << error;
    EXPECT_NE(error.find("A+offload"), std::string::npos) << error;
  });
}

}  // namespace
}  // namespace longhaul::train
