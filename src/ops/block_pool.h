// Memory of host tensors: small blocks from malloc, large ones mapped by themselves and kept for the
// next tensor of that size. malloc alone lets activations of different sizes split each other's
// space, and a long run then holds a quarter more than ever lived at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>

namespace longhaul::ops {

/// Thread-safe. Free blocks are kept as long as they and the live ones together stay within the
/// most that ever lived at once, plus `kSlackBytes`: what the process holds is what it needs.
class BlockPool {
 public:
  static constexpr std::size_t kAlignment = 64;
  /// Blocks from this size on are mapped and kept.
  static constexpr std::int64_t kLargeBytes = std::int64_t{1} << 20;
  static constexpr std::int64_t kSlackBytes = std::int64_t{32} << 20;

  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  /// Unmaps the free blocks; live ones are their owners'.
  ~BlockPool();

  /// At least `bytes` > 0 bytes, aligned to 64; nullptr when the machine has no more.
  void* allocate(std::size_t bytes);
  /// Takes back what `allocate` gave; nullptr is fine.
  void release(void* data);

  struct Counts {
    std::int64_t live = 0;  // bytes of blocks in use
    std::int64_t peak = 0;  // their maximum since the last reset
    std::int64_t free = 0;  // bytes of kept free blocks
  };
  [[nodiscard]] Counts counts() const;
  /// Lets the peak start again from what is live.
  void reset_peak();

 private:
  struct Header;
  using Age = std::list<Header*>;  // oldest first

  Header* take_kept(std::int64_t bytes);
  void make_room(std::int64_t bytes);
  void drop(Header* block);
  void count(std::int64_t bytes);

  mutable std::mutex mutex_;
  Age by_age_;
  std::multimap<std::int64_t, Age::iterator> by_size_;
  Counts counts_;
  std::int64_t most_ever_ = 0;  // the peak, never reset
};

}  // namespace longhaul::ops
