// Where the time of a step goes, by kind of operation: on a GPU between events of the compute stream, on the CPU by the
// clock. Off unless a StepClock lives; then every operation of ops/ and every exchange adds its time.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>

namespace longhaul::ops {

enum class OpKind : std::size_t { kProducts, kAttention, kElementwise, kExchange, kOptimizer };
constexpr std::array<std::string_view, 5> kOpKinds = {"products", "attention", "elementwise",
                                                      "exchange", "optimizer"};

struct StepClockState;

/// Collects the operations of this thread while it lives; one at a time per thread.
class StepClock {
 public:
  explicit StepClock(at::Device device);
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;
  ~StepClock();

  /// Seconds by kind, in the order of kOpKinds. Waits for the device; forgets what it returns.
  std::array<double, kOpKinds.size()> take();

 private:
  std::unique_ptr<StepClockState> state_;
};

/// Times what its scope enqueues on compute. Inside another timer's scope it does nothing.
class OpTimer {
 public:
  explicit OpTimer(OpKind kind);
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;
  ~OpTimer();

 private:
  StepClockState* state_ = nullptr;  // null: nobody listens
};

}  // namespace longhaul::ops
