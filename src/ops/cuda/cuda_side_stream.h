// A GPU's stream beside compute, for ops/side_stream.h.
#pragma once

#include <memory>

#include "ops/side_stream.h"

namespace longhaul::ops {

/// On the current device, with high priority: what runs there is waited for by compute, and takes
/// little of the device.
std::unique_ptr<SideStream> cuda_side_stream();

}  // namespace longhaul::ops
