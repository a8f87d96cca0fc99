// What saves memory on a GPU changes no bit: slots on the host, under compute loads that let copies
// be early or late; attention in groups of heads; the MLP in tiles under any policy.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/activation_policy.h"
#include "model/layout_runner.h"
#include "ops/attention.h"
#include "ops/backend.h"
#include "ops/cuda_library.h"
#include "ops/host_slots.h"
#include "ops/room.h"

namespace longhaul {
namespace {

using testing::Tuning;

constexpr std::int64_t kLayers = 6;

class CudaMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ops::load_cuda_backend(0); }
  void SetUp() override { set_deterministic(true); }
  static void set_deterministic(bool on) {
    at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
  }
  static testing::StepResult run(const std::string& model, Tuning tuning, const std::string& policy,
                                 at::ScalarType type, std::int64_t mlp_tile_rows = 0,
                                 std::int64_t groups = 1, bool reruns_u = false) {
    testing::StepOptions options;
    options.reruns_u = reruns_u;
    options.lora_dropout = tuning == Tuning::kLora ? 0.3 : 0.0;
    options.mlp_tile_rows = mlp_tile_rows;
    options.attention_groups = groups;
    options.device = at::kCUDA;
    options.dtype = type;
    options.slabs = type == at::kBFloat16 && tuning == Tuning::kLora;
    options.num_layers = kLayers;
    options.layer_policies = config::activation_policy_of_layers(policy, kLayers);
    return testing::run_step(
        model, tuning, {},
        testing::flatten(testing::composite_step(testing::tiny_model(model).vocab_size)), options);
  }
  static void expect_equal(const testing::StepResult& got, const testing::StepResult& want,
                           const std::string& what) {
    EXPECT_EQ(got.loss_sum, want.loss_sum) << what;
    for (const auto& [param, gradient] : want.gradients) {
      EXPECT_TRUE(gradient.equal(got.gradients.at(param))) << param << ": " << what;
    }
  }
};

TEST_F(CudaMemory, OffloadGivesTheSameBitsUnderEveryPolicy) {
  for (const char* model : {"llama", "qwen2", "qwen3", "smol"}) {
    for (const Tuning tuning : {Tuning::kLora, Tuning::kFull}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const testing::StepResult keep = run(model, tuning, "A", type);
        for (const char* policy : {"A+offload", "B+offload", "C+offload", "D+offload", "D2+offload",
                                   "1xA+offload,1xB,1xD2+offload,1xD2,1xC+offload,1xA"}) {
          expect_equal(run(model, tuning, policy, type), keep, std::string(model) + " " + policy);
        }
      }
    }
  }
}

TEST_F(CudaMemory, TilesAndHeadGroupsGiveTheSameBitsUnderEveryPolicy) {
  for (const char* model : {"qwen2", "qwen3", "smol"}) {
    for (const Tuning tuning : {Tuning::kLora, Tuning::kFull}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const testing::StepResult keep = run(model, tuning, "A", type, 7, 2);
        for (const char* policy : {"B", "C", "D", "D2", "A+offload", "D2+offload"}) {
          for (const bool reruns_u : {false, true}) {
            expect_equal(run(model, tuning, policy, type, 7, 2, reruns_u), keep,
                         std::string(model) + " " + policy);
          }
        }
      }
    }
  }
}

TEST_F(CudaMemory, TilesStayNearTheWholeRow) {
  for (const char* model : {"llama", "qwen3"}) {
    const testing::StepResult want = run(model, Tuning::kLora, "A", at::kFloat);
    for (const std::int64_t tile : {1, 7, 24}) {
      const testing::StepResult got = run(model, Tuning::kLora, "D", at::kFloat, tile);
      EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum) << tile;
      EXPECT_EQ(testing::compare_gradients(got.gradients, want.gradients, 1e-5), "") << tile;
    }
  }
}

TEST_F(CudaMemory, HeadGroupsGiveTheSamePerHead) {
  struct Heads {
    std::int64_t query;
    std::int64_t kv;
    std::int64_t size;
  };
  // The kernels of float32, of short documents and of long ones.
  const std::vector<std::int32_t> borders = {0, 5, 700, 3900, 4000};
  for (const Heads& heads : {Heads{28, 4, 128}, Heads{8, 8, 64}, Heads{6, 3, 64}}) {
    for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
      set_deterministic(type == at::kFloat);  // else cuDNN does not run
      ops::AttentionShape shape{
          .num_query_heads = heads.query,
          .num_kv_heads = heads.kv,
          .head_dim = heads.size,
          .runs = config::equal_ratio_runs(config::split_heads(heads.query, heads.kv, 1).front())};
      at::manual_seed(1);
      const auto options = at::TensorOptions().device(at::kCUDA).dtype(type);
      const at::Tensor qkv =
          at::randn({borders.back(), (heads.query + 2 * heads.kv) * heads.size}, options);
      const at::Tensor dout = at::randn({borders.back(), heads.query * heads.size}, options);
      const ops::AttentionOutput want = ops::attention_forward(qkv, shape, borders);
      const at::Tensor gradient = ops::attention_backward(dout, qkv, want, shape, borders);
      for (shape.groups = 2; shape.groups <= heads.kv; ++shape.groups) {
        const ops::AttentionOutput got = ops::attention_forward(qkv, shape, borders);
        const std::string what = std::to_string(heads.query) + " heads, groups " +
                                 std::to_string(shape.groups) + ", type " + c10::toString(type);
        EXPECT_TRUE(got.out.equal(want.out)) << what;
        EXPECT_TRUE(got.lse.equal(want.lse)) << what;
        const at::Tensor grouped = ops::attention_backward(dout, qkv, got, shape, borders);
        if (type == at::kFloat) {
          EXPECT_TRUE(grouped.equal(gradient)) << what;
        } else {  // cuDNN orders its sums by the number of heads: one rounding of bf16
          const at::Tensor difference = (grouped - gradient).to(at::kDouble);
          EXPECT_LE(difference.norm().item<double>(),
                    4e-3 * gradient.to(at::kDouble).norm().item<double>())
              << what;
        }
      }
    }
  }
}

TEST_F(CudaMemory, HeadGroupsTakeLessMemory) {
  set_deterministic(false);
  const ops::Backend& device = ops::backend_of(at::Device(at::kCUDA, 0));
  ops::AttentionShape shape{
      .num_query_heads = 28,
      .num_kv_heads = 4,
      .head_dim = 128,
      .runs = config::equal_ratio_runs(config::split_heads(28, 4, 1).front())};
  constexpr std::int32_t kTokens = 16384;
  const std::vector<std::int32_t> borders = {0, kTokens};
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor qkv = at::randn({kTokens, 36 * 128}, options);
  const at::Tensor dout = at::randn({kTokens, 28 * 128}, options);
  const ops::AttentionOutput forward = ops::attention_forward(qkv, shape, borders);
  const auto bytes_per_token = [&](std::int64_t groups) {
    shape.groups = groups;
    ops::attention_backward(dout, qkv, forward, shape, borders);  // what is allocated only once
    const std::int64_t before = device.memory().current_bytes;
    device.reset_memory_peak();
    ops::attention_backward(dout, qkv, forward, shape, borders);
    return (device.memory().peak_bytes - before) / kTokens;
  };
  // d(qkv) takes 9.2 KB; the kernel 38 KB for all heads, a quarter of it for one group of four.
  EXPECT_LE(bytes_per_token(1), 9216 + 40'000);
  EXPECT_LE(bytes_per_token(4), 9216 + 14'000);
}

/// One layer of a row: `load` products on the compute stream, then a group that depends on them.
struct Layers {
  std::int64_t rows;
  int load;
};

/// Runs a forward and a backward pass of groups of every layout; each group is written by compute
/// just before it is put, and overwritten by compute right after it was taken.
void walk(ops::HostSlots& slots, const Layers& layers, int round) {
  constexpr int kCount = 6;
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kFloat);
  const at::Tensor busy = at::ones({1024, 1024}, options);
  const auto compute = [&] {
    for (int i = 0; i < layers.load; ++i) {
      busy.copy_(at::mm(busy, busy).mul_(1.0 / 1024));
    }
  };
  slots.begin(layers.rows);
  std::vector<ops::HostSlots::Handle> handles;
  for (int layer = 0; layer < kCount; ++layer) {
    slots.settle();
    compute();
    const double value = round * 100 + layer;
    at::Tensor with_room = ops::empty_with_room(layers.rows, 2000, 16, options);
    with_room.fill_(value);
    at::Tensor far_apart = ops::empty_with_room(layers.rows, 512, 512, options);
    far_apart.fill_(value + 0.25);
    handles.push_back(slots.put({std::move(with_room), at::Tensor(), std::move(far_apart),
                                 at::full({7, layers.rows}, value + 0.5, options).t()}));
    // Takes the freed memory, if it was freed too early.
    at::full({layers.rows, 2016}, -1.0, options);
  }
  slots.settle();
  std::vector<at::Tensor> wrong;
  for (int layer = kCount; layer-- > 0;) {
    const auto i = static_cast<std::size_t>(layer);
    std::vector<at::Tensor> group = slots.take(handles[i]);
    if (layer > 0) {
      slots.prefetch(handles[i - 1]);
    }
    const double value = round * 100 + layer;
    wrong.push_back(group[0].ne(value).sum() + group[2].ne(value + 0.25).sum() +
                    group[3].ne(value + 0.5).sum());
    compute();
    for (at::Tensor& tensor : group) {
      if (tensor.defined()) {
        tensor.fill_(-2.0);
      }
    }
  }
  EXPECT_EQ(at::stack(wrong).sum().item<std::int64_t>(), 0)
      << layers.rows << " rows, load " << layers.load << ", round " << round;
}

TEST_F(CudaMemory, CopiesAreNeitherTooEarlyNorTooLate) {
  constexpr std::int64_t kLargest = 8192;
  ops::HostSlots slots(ops::backend_of(at::Device(at::kCUDA, 0)).host_copier(),
                       {.largest_row = kLargest});
  walk(slots, {kLargest, 0}, 0);
  const std::int64_t made = slots.num_allocations();
  for (int round = 1; round <= 20; ++round) {
    for (const std::int64_t rows : {std::int64_t{64}, std::int64_t{3000}, kLargest}) {
      for (const int load : {0, 1, 40}) {
        walk(slots, {rows, load}, round);
      }
    }
  }
  EXPECT_EQ(slots.num_allocations(), made);
}

TEST_F(CudaMemory, DeviceMemoryOfOffloadedGroupsIsBounded) {
  const ops::Backend& device = ops::backend_of(at::Device(at::kCUDA, 0));
  constexpr std::int64_t kGroup = std::int64_t{32} << 20;
  ops::HostSlots slots(device.host_copier(), {});
  slots.begin(1);
  const std::int64_t before = device.memory().current_bytes;
  device.reset_memory_peak();
  std::vector<ops::HostSlots::Handle> handles;
  for (int layer = 0; layer < 12; ++layer) {
    slots.settle();
    handles.push_back(slots.put(
        {at::full({kGroup}, layer, at::TensorOptions().device(at::kCUDA).dtype(at::kByte))}));
  }
  slots.settle();
  for (std::size_t i = handles.size(); i-- > 0;) {
    const auto group = slots.take(handles[i]);
    if (i > 0) {
      slots.prefetch(handles[i - 1]);
    }
    EXPECT_TRUE(group[0].eq(static_cast<std::int64_t>(i)).all().item<bool>());
  }
  // Two groups, and the comparison's own mask.
  EXPECT_LE(device.memory().peak_bytes - before, 4 * kGroup);
  EXPECT_GE(slots.host_bytes(), 12 * kGroup);
}

TEST_F(CudaMemory, AsksForLessWhenTheHostHasNoMore) {
  const auto copier = ops::backend_of(at::Device(at::kCUDA, 0)).host_copier();
  EXPECT_EQ(copier->allocate(std::int64_t{1} << 50), nullptr);
  // The failure leaves nothing behind.
  EXPECT_EQ(at::ones({2}, at::TensorOptions().device(at::kCUDA)).sum().item<float>(), 2.0F);
}

}  // namespace
}  // namespace longhaul
