// Copies between a GPU and page-locked host memory, for ops/host_slots.h.
#pragma once

#include <memory>

#include "ops/host_slots.h"

namespace longhaul::ops {

/// Copies on two streams of the current device, one to the host and one from it, so that both
/// copy engines work at once.
std::unique_ptr<HostCopier> cuda_host_copier();

}  // namespace longhaul::ops
