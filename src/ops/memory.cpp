#include "ops/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "ops/block_pool.h"

namespace longhaul::ops {
namespace {

/// Lives as long as the process: tensors may outlive main.
BlockPool& pool() {
  static auto* const instance = new BlockPool;
  return *instance;
}

void release(void* pointer) { pool().release(pointer); }

class PoolAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* pointer = nullptr;
    if (bytes > 0) {
      pointer = pool().allocate(bytes);
      if (pointer == nullptr) {
        throw base::SystemError(
            {.where = "memory",
             .what = fmt::format("cannot allocate {} bytes of host memory", bytes),
             .hint = "Ask for less: a shorter --max_length, more ranks or "
                     "--activation_policy D; `longhaul plan` shows the bytes"});
      }
    }
    return {pointer, pointer, &release, c10::Device(c10::DeviceType::CPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }
};

}  // namespace

void install_counting_allocator() {
  static PoolAllocator* const allocator = [] {
    auto* made = new PoolAllocator;
    c10::SetCPUAllocator(made, /*priority=*/1);
    return made;
  }();
  static_cast<void>(allocator);
}

MemoryCounters host_memory() {
  const BlockPool::Counts counts = pool().counts();
  return {.current_bytes = counts.live, .peak_bytes = counts.peak};
}

void reset_host_memory_peak() { pool().reset_peak(); }

}  // namespace longhaul::ops
