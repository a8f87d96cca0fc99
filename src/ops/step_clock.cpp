#include "ops/step_clock.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
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
    bool device_was_idle;  // when `begin` was given: the span before was done
  };

  explicit StepClockState(at::Device on) : device(on) {}

  at::Device device;
  bool is_inside = false;  // a timer runs
  OpKind kind = OpKind::kProducts;
  Clock::time_point cpu_begin;
  std::optional<c10::Event> begin;
  bool device_was_idle = false;
  std::optional<c10::Event> start;  // what the first span comes after
  std::vector<Span> spans;
  std::array<double, kOpKinds.size()> seconds{};

  c10::Event& last_event() { return spans.empty() ? *start : spans.back().end; }
};

namespace {

thread_local StepClockState* listening = nullptr;  // NOLINT: of this thread's StepClock

}  // namespace

StepClock::StepClock(at::Device device) : state_(std::make_unique<StepClockState>(device)) {
  LONGHAUL_ASSERT(listening == nullptr, "one step clock per thread");
  listening = state_.get();
  if (!device.is_cpu()) {
    state_->start.emplace(event_now(device));
  }
}

StepClock::~StepClock() { listening = nullptr; }

OpSeconds StepClock::take() {
  constexpr double kMillisecond = 1e-3;
  OpSeconds seconds{.of = std::exchange(state_->seconds, {})};
  const c10::Event* before = state_->start ? &*state_->start : nullptr;
  for (StepClockState::Span& span : state_->spans) {
    span.end.synchronize();
    seconds.of[static_cast<std::size_t>(span.kind)] +=
        span.begin.elapsedTime(span.end) * kMillisecond;
    if (span.device_was_idle) {
      // Work beside compute has its own order.
      seconds.host += std::max(0.0, before->elapsedTime(span.begin) * kMillisecond);
    }
    before = &span.end;
  }
  if (!state_->spans.empty()) {
    state_->start.emplace(std::move(state_->spans.back().end));
    state_->spans.clear();
  }
  return seconds;
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
    state_->device_was_idle = state_->last_event().query();
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
    state_->spans.push_back({state_->kind, std::move(*state_->begin), event_now(state_->device),
                             state_->device_was_idle});
  }
}

}  // namespace longhaul::ops
