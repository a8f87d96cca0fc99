#include "ops/step_clock.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace longhaul::ops {
namespace {

using Clock = std::chrono::steady_clock;

c10::Event event_now(at::Device device) {
  c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

}  // namespace

struct StepClockState {
  /// Between two events of a GPU; of the CPU the seconds are known at once.
  struct Span {
    OpKind kind;
    c10::Event begin;
    c10::Event end;
  };

  explicit StepClockState(at::Device on) : device(on) {}

  at::Device device;
  bool is_inside = false;  // a timer runs
  OpKind kind = OpKind::kProducts;
  Clock::time_point cpu_begin;
  std::optional<c10::Event> begin;
  std::vector<Span> spans;
  std::array<double, kOpKinds.size()> seconds{};
};

namespace {

thread_local StepClockState* listening = nullptr;  // NOLINT: of this thread's StepClock

}  // namespace

StepClock::StepClock(at::Device device) : state_(std::make_unique<StepClockState>(device)) {
  LONGHAUL_ASSERT(listening == nullptr, "one step clock per thread");
  listening = state_.get();
}

StepClock::~StepClock() { listening = nullptr; }

std::array<double, kOpKinds.size()> StepClock::take() {
  constexpr double kMillisecond = 1e-3;
  for (StepClockState::Span& span : state_->spans) {
    span.end.synchronize();
    state_->seconds[static_cast<std::size_t>(span.kind)] +=
        span.begin.elapsedTime(span.end) * kMillisecond;
  }
  state_->spans.clear();
  return std::exchange(state_->seconds, {});
}

OpTimer::OpTimer(OpKind kind) {
  if (listening == nullptr || listening->is_inside) {
    return;
  }
  state_ = listening;
  state_->is_inside = true;
  state_->kind = kind;
  if (state_->device.is_cpu()) {
    state_->cpu_begin = Clock::now();
  } else {
    state_->begin.emplace(event_now(state_->device));
  }
}

OpTimer::~OpTimer() {
  if (state_ == nullptr) {
    return;
  }
  state_->is_inside = false;
  if (state_->device.is_cpu()) {
    state_->seconds[static_cast<std::size_t>(state_->kind)] +=
        std::chrono::duration<double>(Clock::now() - state_->cpu_begin).count();
  } else {
    state_->spans.push_back({state_->kind, std::move(*state_->begin), event_now(state_->device)});
  }
}

}  // namespace longhaul::ops
