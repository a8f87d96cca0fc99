// Where the time of a step goes, by kind of operation: on a GPU between events of the compute stream, on the CPU by the
// clock. Off unless a StepClock lives; then every operation of ops/ and every exchange adds its time.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>

namespace longhaul::ops {

enum class OpKind : std::size_t {
  kProducts,
  kAttention,
  kElementwise,
  kExchange,  // as far as compute stands still for it
  kCopies,    // to and from the host, likewise
  kOptimizer
};
constexpr std::array<std::string_view, 6> kOpKinds = {"products", "attention", "elementwise",
                                                      "exchange", "copies",    "optimizer"};

/// Seconds of what a StepClock heard.
struct OpSeconds {
  std::array<double, kOpKinds.size()> of{};  // by kind, in the order of kOpKinds
  /// Between operations of which the later one was given only when the GPU had done the earlier one; 0 on the CPU.
  double host = 0;
};

struct StepClockState;

/// Collects the operations of this thread while it lives; one at a time per thread.
class StepClock {
 public:
  explicit StepClock(at::Device device);
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;
  ~StepClock();

  /// Waits for the device; forgets what it returns.
  OpSeconds take();

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
