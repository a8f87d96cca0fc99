#include "base/rng.h"

#include <numeric>

#include "base/error.h"

namespace longhaul::base {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;

std::uint32_t low32(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t high32(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t p1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {high32(p1) ^ counter[1] ^ key[0], low32(p1), high32(p0) ^ counter[3] ^ key[1],
               low32(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

CounterRng::CounterRng(std::uint64_t seed, RngPurpose purpose, std::uint64_t stream)
    : key_{}, high_{} {
  // One Philox block turns (seed, purpose, stream) into a key, so that neighbouring seeds and
  // streams are unrelated.
  const auto mixed = philox4x32({low32(seed), high32(seed), low32(stream), high32(stream)},
                                {static_cast<std::uint32_t>(purpose), 0x6C6F6E67});
  key_ = {mixed[0], mixed[1]};
  high_ = {mixed[2], mixed[3]};
}

std::array<std::uint32_t, 4> CounterRng::words(std::uint64_t index) const {
  return philox4x32({low32(index), high32(index), high_[0], high_[1]}, key_);
}

std::uint64_t CounterRng::bits64(std::uint64_t index) const {
  const auto w = words(index);
  return (std::uint64_t{w[1]} << 32) | w[0];
}

float CounterRng::uniform(std::uint64_t index) const {
  return static_cast<float>(words(index)[0] >> 8) * 0x1.0p-24F;
}

std::uint64_t CounterRng::below(std::uint64_t index, std::uint64_t bound) const {
  LONGHAUL_ASSERT(bound > 0, "bound of a random integer is positive");
  // Multiply-shift of 64 random bits: the bias is below bound / 2^64, far under what any run can
  // notice.
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{bits64(index)} * Wide{bound}) >> 64);
}

std::vector<std::int64_t> permutation(std::int64_t n, const CounterRng& rng) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::int64_t i = n - 1; i > 0; --i) {
    const auto j = rng.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(i) + 1);
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(j)]);
  }
  return order;
}

}  // namespace longhaul::base
