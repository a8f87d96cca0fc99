#include "ops/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/ceil_div.h"

namespace longhaul::ops {
namespace {

constexpr std::int64_t kPageBytes = 4096;
/// A kept block serves a request that is at most an eighth smaller.
constexpr std::int64_t kFit = 8;

bool is_large(std::int64_t block_bytes) { return block_bytes >= BlockPool::kLargeBytes; }

void* map_pages(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    return nullptr;
  }
  // Fewer page faults; only a wish, so the answer does not matter.
  static_cast<void>(madvise(pages, size, MADV_HUGEPAGE));
  return pages;
}

}  // namespace

/// Stands before the data of every block and keeps its alignment.
struct alignas(BlockPool::kAlignment) BlockPool::Header {
  std::int64_t bytes;  // of the block, this header included

  void* data() { return this + 1; }
  static Header* of(void* data) { return static_cast<Header*>(data) - 1; }
};

BlockPool::~BlockPool() {
  while (!by_age_.empty()) {
    drop(by_age_.front());
  }
}

void* BlockPool::allocate(std::size_t bytes) {
  auto block_bytes = static_cast<std::int64_t>(bytes + sizeof(Header));
  if (!is_large(block_bytes)) {
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, static_cast<std::size_t>(block_bytes)) != 0) {
      return nullptr;
    }
    const std::lock_guard lock(mutex_);
    count(block_bytes);
    return (new (memory) Header{block_bytes})->data();
  }
  block_bytes = base::round_up(block_bytes, kPageBytes);
  const std::lock_guard lock(mutex_);
  Header* block = take_kept(block_bytes);
  if (block == nullptr) {
    make_room(block_bytes);
    void* pages = map_pages(block_bytes);
    if (pages == nullptr) {
      return nullptr;
    }
    block = new (pages) Header{block_bytes};
  }
  count(block->bytes);
  return block->data();
}

void BlockPool::release(void* data) {
  if (data == nullptr) {
    return;
  }
  Header* block = Header::of(data);
  {
    const std::lock_guard lock(mutex_);
    counts_.live -= block->bytes;
    if (is_large(block->bytes)) {
      counts_.free += block->bytes;
      by_size_.emplace(block->bytes, by_age_.insert(by_age_.end(), block));
      return;
    }
  }
  std::free(block);
}

BlockPool::Counts BlockPool::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void BlockPool::reset_peak() {
  const std::lock_guard lock(mutex_);
  counts_.peak = counts_.live;
}

/// The smallest kept block that fits, or nullptr.
BlockPool::Header* BlockPool::take_kept(std::int64_t bytes) {
  const auto found = by_size_.lower_bound(bytes);
  if (found == by_size_.end() || found->first - bytes > bytes / kFit) {
    return nullptr;
  }
  Header* block = *found->second;
  by_age_.erase(found->second);
  by_size_.erase(found);
  counts_.free -= block->bytes;
  return block;
}

/// Unmaps the oldest free blocks until a new one of `bytes` fits beside the rest.
void BlockPool::make_room(std::int64_t bytes) {
  const std::int64_t live = counts_.live + bytes;
  const std::int64_t most = std::max(most_ever_, live) + kSlackBytes;
  while (!by_age_.empty() && live + counts_.free > most) {
    drop(by_age_.front());
  }
}

void BlockPool::drop(Header* block) {
  auto [entry, end] = by_size_.equal_range(block->bytes);
  while (entry != end && *entry->second != block) {
    ++entry;
  }
  by_age_.erase(entry->second);
  by_size_.erase(entry);
  counts_.free -= block->bytes;
  munmap(block, static_cast<std::size_t>(block->bytes));
}

void BlockPool::count(std::int64_t bytes) {
  counts_.live += bytes;
  counts_.peak = std::max(counts_.peak, counts_.live);
  most_ever_ = std::max(most_ever_, counts_.live);
}

}  // namespace longhaul::ops
