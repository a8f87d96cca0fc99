#include "ops/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace longhaul::ops {
namespace {

struct Counts {
  std::atomic<std::int64_t> current{0};
  std::atomic<std::int64_t> peak{0};
};

Counts& counts() {
  static Counts instance;
  return instance;
}

void count_allocation(void* pointer) {
  Counts& c = counts();
  const auto bytes = static_cast<std::int64_t>(::malloc_usable_size(pointer));
  const std::int64_t now = c.current.fetch_add(bytes) + bytes;
  std::int64_t peak = c.peak.load();
  while (now > peak && !c.peak.compare_exchange_weak(peak, now)) {
  }
}

void release(void* pointer) {
  if (pointer != nullptr) {
    counts().current.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(pointer)));
    std::free(pointer);
  }
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* pointer = nullptr;
    if (bytes > 0) {
      if (::posix_memalign(&pointer, 64, bytes) != 0) {
        throw base::SystemError(
            {.where = "memory",
             .what = fmt::format("cannot allocate {} bytes of host memory", bytes),
             .hint = "Ask for less: a shorter --max_length, more ranks or "
                     "--activation_policy D; `longhaul plan` shows the bytes"});
      }
      count_allocation(pointer);
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
  static CountingAllocator* const allocator = [] {
    // Activations of every layer and step have the same sizes: keep freed blocks instead of giving
    // them back to the kernel and faulting them in again.
    ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
    ::mallopt(M_TRIM_THRESHOLD, 512 << 20);
    auto* made = new CountingAllocator;  // lives as long as the process: tensors may outlive main
    c10::SetCPUAllocator(made, /*priority=*/1);
    return made;
  }();
  static_cast<void>(allocator);
}

MemoryCounters host_memory() { return {counts().current.load(), counts().peak.load()}; }

void reset_host_memory_peak() { counts().peak.store(counts().current.load()); }

}  // namespace longhaul::ops
