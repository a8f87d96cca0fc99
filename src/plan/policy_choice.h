// Which activation policy every layer gets when the user leaves it to the program.
#pragma once

#include <vector>

#include "plan/memory_plan.h"

namespace longhaul::plan {

/// What a preset runs again in a layer's backward pass, as a share of the whole step; rough, for
/// devices without rates.
double rerun_share(config::ActivationPreset preset);

/// The mix of presets that fits request.limit_bytes and is fastest. Ladders of mixes, from the one
/// that re-runs least, are walked until one fits; each starts with A everywhere, and of their
/// results the one whose predicted step is shortest is taken (plan/step_time.h; the first of equal
/// ones):
///   on the device alone: layers from the top go to B, then all to C, D and D2;
///   with a host limit, for A to D2 with offload: layers from the bottom, which have the longest
///   until their backward pass, go to it while the host has room, then the others as above. A, B
///   and C only where twice the copy fits under the layer's forward pass, so that it is hidden even
///   when two devices share the way to the host.
/// When nothing fits, the smallest of the ladders' last mixes.
MemoryPlan choose_policies(const MemoryRequest& request);

}  // namespace longhaul::plan
