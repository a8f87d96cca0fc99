// Counts every tensor allocation of this process, so that `plan` can be compared with what really
// happened.
#pragma once

#include <cstdint>

namespace longhaul::ops {

struct MemoryCounters {
  std::int64_t current_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t peak_reserved_bytes = 0;  // what the allocator held for them; 0: it does not tell
};

/// Replaces libtorch's host allocator by a BlockPool, which counts (64-byte aligned, large blocks kept for
/// reuse). Idempotent; call before the first tensor is made.
void install_counting_allocator();

/// Bytes of live host tensors and their maximum since the last reset.
MemoryCounters host_memory();

/// Lets the peak start again from what is live now.
void reset_host_memory_peak();

}  // namespace longhaul::ops
