// One message when a device's memory runs out in the middle of a run: what was planned, what was found, what helps.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "base/error.h"
#include "ops/backend.h"
#include "plan/memory_plan.h"

namespace longhaul::train {

/// What a device holds when an allocation has failed.
struct MemoryFound {
  std::int64_t tensor_bytes = 0;
  std::int64_t usable_bytes = 0;  // what tensors of this process may take
};

/// The problem of `step` ("step 3").
base::Problem out_of_memory(const std::string& step, const plan::MemoryPlan& plan,
                            const MemoryFound& found);

/// `work`, whose allocations that fail on `device` end as a SystemError with the above.
template <typename Work>
auto explain_out_of_memory(const std::string& step, const plan::MemoryPlan& plan, at::Device device,
                           Work work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError&) {
    const ops::Backend& backend = ops::backend_of(device);
    throw base::SystemError(out_of_memory(
        step, plan,
        {.tensor_bytes = backend.memory().current_bytes, .usable_bytes = backend.usable_bytes()}));
  }
}

}  // namespace longhaul::train
