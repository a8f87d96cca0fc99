// Counter-based random numbers (Philox4x32-10): a value depends on (seed, stream, counter) alone,
// never on the order of calls, the rank or the thread. Source: Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3".
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace longhaul::base {

/// Ten rounds of Philox4x32.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// What a stream of random numbers is for; part of the key, so purposes never share numbers.
enum class RngPurpose : std::uint32_t {
  kLoraInit = 1,
  kDropout = 2,
  kNeftune = 3,
  kShuffleData = 4,
  kShuffleEpoch = 5,
  kSplit = 6,
  kSampling = 7,
  kBenchWeights = 8,
  kSubsample = 9,
  kMomentRounding = 10,
};

/// Random numbers addressed by (seed, purpose, stream) and a 64-bit index.
class CounterRng {
 public:
  CounterRng(std::uint64_t seed, RngPurpose purpose, std::uint64_t stream = 0);

  /// Four 32-bit words at `index` (words 4·index … 4·index+3 of the stream).
  [[nodiscard]] std::array<std::uint32_t, 4> words(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t bits64(std::uint64_t index) const;
  /// Uniform in [0, 1) with 24 bits.
  [[nodiscard]] float uniform(std::uint64_t index) const;
  /// Uniform integer in [0, bound), free of modulo bias; bound ≥ 1.
  [[nodiscard]] std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> high_;
};

/// A permutation of [0, n) (Fisher–Yates) that depends on the generator's address only.
std::vector<std::int64_t> permutation(std::int64_t n, const CounterRng& rng);

}  // namespace longhaul::base
