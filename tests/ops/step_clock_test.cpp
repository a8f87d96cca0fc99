// What the clock of a step counts, and what it leaves alone.
#include "ops/step_clock.h"

#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "ops/host_slots.h"
#include "ops/matmul.h"
#include "ops/rows.h"

namespace longhaul::ops {
namespace {

std::size_t index(OpKind kind) { return static_cast<std::size_t>(kind); }

double sum(const OpSeconds& seconds) {
  return std::accumulate(seconds.of.begin(), seconds.of.end(), 0.0);
}

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(StepClock, AddsUpByKindAndForgetsWhatItGave) {
  StepClock clock(at::kCPU);
  for (int i = 0; i < 2; ++i) {
    const OpTimer timer(OpKind::kExchange);
    sleep_ms(5);
  }
  const OpSeconds seconds = clock.take();
  EXPECT_GE(seconds.of[index(OpKind::kExchange)], 0.01);
  EXPECT_EQ(sum(seconds), seconds.of[index(OpKind::kExchange)]);
  EXPECT_EQ(seconds.host, 0);
  EXPECT_EQ(sum(clock.take()), 0);
}

TEST(StepClock, AnInnerTimerBelongsToTheOuterOne) {
  StepClock clock(at::kCPU);
  {
    const OpTimer outer(OpKind::kAttention);
    const OpTimer inner(OpKind::kProducts);
    sleep_ms(2);
  }
  const OpSeconds seconds = clock.take();
  EXPECT_GT(seconds.of[index(OpKind::kAttention)], 0);
  EXPECT_EQ(seconds.of[index(OpKind::kProducts)], 0);
}

TEST(StepClock, OperationsCountThemselves) {
  const at::Tensor x = at::rand({64, 32});
  const at::Tensor w = at::rand({48, 32});
  const at::Tensor y = at::rand({64, 48});
  StepClock clock(at::kCPU);
  linear(x, w, at::Tensor(), y);
  swiglu(y, at::rand({64, 24}));
  const OpSeconds seconds = clock.take();
  EXPECT_GT(seconds.of[index(OpKind::kProducts)], 0);
  EXPECT_GT(seconds.of[index(OpKind::kElementwise)], 0);
  EXPECT_EQ(seconds.of[index(OpKind::kAttention)], 0);
}

TEST(StepClock, ActivationsOnTheirWayToTheHostAreCopies) {
  HostSlots slots(cpu_host_copier(), {});
  StepClock clock(at::kCPU);
  slots.begin(64);
  const HostSlots::Handle handle = slots.put({at::rand({64, 4096})});
  EXPECT_GT(clock.take().of[index(OpKind::kCopies)], 0);
  slots.put({at::rand({1})});
  slots.put({at::rand({1})});
  slots.settle();
  clock.take();
  slots.take(handle);
  const OpSeconds seconds = clock.take();
  EXPECT_GT(seconds.of[index(OpKind::kCopies)], 0);
  EXPECT_EQ(sum(seconds), seconds.of[index(OpKind::kCopies)]);
}

TEST(StepClock, WithoutOneNothingIsCountedAndOtherThreadsAreNotHeard) {
  { const OpTimer unheard(OpKind::kProducts); }
  StepClock clock(at::kCPU);
  std::thread([] {
    const OpTimer timer(OpKind::kProducts);
    sleep_ms(2);
  }).join();
  EXPECT_EQ(clock.take().of[index(OpKind::kProducts)], 0);
}

}  // namespace
}  // namespace longhaul::ops
