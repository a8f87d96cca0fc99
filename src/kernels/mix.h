// The mixer behind every random number that kernels draw: one definition for all instruction sets
// and devices, or a run could not move between them.
#pragma once

#include <cstdint>

namespace longhaul::kernels {

/// A cheap 64-bit mixer (SplitMix64's finaliser): every output bit depends on every input bit.
/// Internal linkage: each instruction set's build keeps code of its own.
static constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

}  // namespace longhaul::kernels
