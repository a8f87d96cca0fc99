// What the clock of a step counts, and what it leaves alone.
#include "ops/step_clock.h"

#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "ops/matmul.h"
#include "ops/rows.h"

namespace longhaul::ops {
namespace {

std::size_t index(OpKind kind) { return static_cast<std::size_t>(kind); }

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(StepClock, AddsUpByKindAndForgetsWhatItGave) {
  StepClock clock(at::kCPU);
  for (int i = 0; i < 2; ++i) {
    const OpTimer timer(OpKind::kExchange);
    sleep_ms(5);
  }
  const auto seconds = clock.take();
  EXPECT_GE(seconds[index(OpKind::kExchange)], 0.01);
  EXPECT_EQ(std::accumulate(seconds.begin(), seconds.end(), 0.0),
            seconds[index(OpKind::kExchange)]);
  const auto after = clock.take();
  EXPECT_EQ(std::accumulate(after.begin(), after.end(), 0.0), 0);
}

TEST(StepClock, AnInnerTimerBelongsToTheOuterOne) {
  StepClock clock(at::kCPU);
  {
    const OpTimer outer(OpKind::kAttention);
    const OpTimer inner(OpKind::kProducts);
    sleep_ms(2);
  }
  const auto seconds = clock.take();
  EXPECT_GT(seconds[index(OpKind::kAttention)], 0);
  EXPECT_EQ(seconds[index(OpKind::kProducts)], 0);
}

TEST(StepClock, OperationsCountThemselves) {
  const at::Tensor x = at::rand({64, 32});
  const at::Tensor w = at::rand({48, 32});
  const at::Tensor y = at::rand({64, 48});
  StepClock clock(at::kCPU);
  linear(x, w, at::Tensor(), y);
  swiglu(y, at::rand({64, 24}));
  const auto seconds = clock.take();
  EXPECT_GT(seconds[index(OpKind::kProducts)], 0);
  EXPECT_GT(seconds[index(OpKind::kElementwise)], 0);
  EXPECT_EQ(seconds[index(OpKind::kAttention)], 0);
}

TEST(StepClock, WithoutOneNothingIsCountedAndOtherThreadsAreNotHeard) {
  { const OpTimer unheard(OpKind::kProducts); }
  StepClock clock(at::kCPU);
  std::thread([] {
    const OpTimer timer(OpKind::kProducts);
    sleep_ms(2);
  }).join();
  EXPECT_EQ(clock.take()[index(OpKind::kProducts)], 0);
}

}  // namespace
}  // namespace longhaul::ops
