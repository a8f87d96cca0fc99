#include "ops/host_slots.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/ceil_div.h"
#include "base/error.h"
#include "ops/step_clock.h"

namespace longhaul::ops {
namespace {

constexpr std::int64_t kAlignment = 256;
/// Blocks are whole multiples of this, so that the rounding of token counts needs no second block.
constexpr std::int64_t kBlockBytes = std::int64_t{64} << 10;
/// Room of up to a sixteenth of a row travels along.
constexpr std::int64_t kRoomShare = 16;

bool has_room(at::IntArrayRef sizes, at::IntArrayRef strides) {
  return sizes.size() == 2 && strides[1] == 1 && strides[0] > sizes[1];
}

/// The room behind the last row belongs to the tensor, too: products look for it.
at::Tensor make_tensor(at::IntArrayRef sizes, at::IntArrayRef strides,
                       const at::TensorOptions& options) {
  return has_room(sizes, strides)
             ? at::empty({sizes[0], strides[0]}, options).narrow(1, 0, sizes[1])
             : at::empty_strided(sizes, strides, options);
}

class CpuHostCopier final : public HostCopier {
 public:
  void* allocate(std::int64_t bytes) override {
    return std::malloc(static_cast<std::size_t>(bytes));
  }
  void release(void* block) override { std::free(block); }
  Mark copy_out(std::span<const HostCopy> copies) override {
    for (const HostCopy& copy : copies) {
      for_each_row(copy, [](std::byte* device, std::byte* host, std::size_t bytes) {
        std::memcpy(host, device, bytes);
      });
    }
    return nullptr;
  }
  Mark copy_in(std::span<const HostCopy> copies, const Mark& /*after*/) override {
    for (const HostCopy& copy : copies) {
      for_each_row(copy, [](std::byte* device, std::byte* host, std::size_t bytes) {
        std::memcpy(device, host, bytes);
      });
    }
    return nullptr;
  }
  void wait(const Mark& /*mark*/) override {}

 private:
  template <typename Function>
  static void for_each_row(const HostCopy& copy, Function function) {
    auto* device = static_cast<std::byte*>(copy.device.data_ptr());
    auto* host = static_cast<std::byte*>(copy.host);
    for (std::int64_t row = 0; row < copy.rows.rows; ++row) {
      function(device + row * copy.rows.pitch, host + row * copy.rows.row_bytes,
               static_cast<std::size_t>(copy.rows.row_bytes));
    }
  }
};

}  // namespace

TensorRows rows_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return {};
  }
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  if (tensor.is_non_overlapping_and_dense()) {
    return {1, bytes, bytes};
  }
  LONGHAUL_ASSERT(has_room(tensor.sizes(), tensor.strides()),
                  "slots are dense, or matrices with room behind their rows");
  const auto element = static_cast<std::int64_t>(tensor.element_size());
  const std::int64_t row_bytes = tensor.size(1) * element;
  const std::int64_t pitch = tensor.stride(0) * element;
  if (pitch - row_bytes <= row_bytes / kRoomShare) {
    const std::int64_t span = (tensor.size(0) - 1) * pitch + row_bytes;
    return {1, span, span};
  }
  return {tensor.size(0), row_bytes, pitch};
}

HostSlots::HostSlots(std::unique_ptr<HostCopier> copier, HostBudget budget)
    : copier_(std::move(copier)), budget_(budget) {}

HostSlots::~HostSlots() {
  for (const Group& group : groups_) {
    drop_block(group.block);
  }
  for (const Block& block : free_blocks_) {
    drop_block(block);
  }
}

void HostSlots::begin(std::int64_t row_tokens) {
  for (Group& group : groups_) {
    if (group.state != State::kTaken) {
      copier_->wait(group.mark);
      keep_block(group.block);
    }
  }
  groups_.clear();
  leaving_.clear();
  row_tokens_ = row_tokens;
}

void HostSlots::settle() {
  while (leaving_.size() > 1) {
    Group& group = groups_[leaving_.front()];
    leaving_.pop_front();
    // Compute goes on after the copy, so what it allocates next may lie where the tensors lay.
    const OpTimer timer(OpKind::kCopies);
    copier_->wait(group.mark);
    group.tensors.clear();
    group.state = State::kOnHost;
  }
}

std::vector<HostCopy> HostSlots::copies_of(const Group& group) {
  std::vector<HostCopy> copies;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const Member& member = group.members[i];
    if (member.offset >= 0 && member.rows.rows > 0) {
      copies.push_back({group.tensors[i], member.rows,
                        static_cast<std::byte*>(group.block.data) + member.offset});
    }
  }
  return copies;
}

HostSlots::Handle HostSlots::put(std::vector<at::Tensor> tensors) {
  Group group;
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    Member member;
    if (tensor.defined()) {
      member = {tensor.sizes().vec(), tensor.strides().vec(), tensor.options(), rows_of(tensor),
                bytes};
      bytes = base::round_up(bytes + member.rows.rows * member.rows.row_bytes, kAlignment);
    }
    group.members.push_back(std::move(member));
  }
  group.tensors = std::move(tensors);
  group.block = take_block(bytes);
  const OpTimer timer(OpKind::kCopies);
  group.mark = copier_->copy_out(copies_of(group));
  groups_.push_back(std::move(group));
  leaving_.push_back(groups_.size() - 1);
  return groups_.size() - 1;
}

void HostSlots::prefetch(Handle handle) {
  Group& group = groups_.at(handle);
  if (group.state != State::kOnHost) {
    return;
  }
  for (const Member& member : group.members) {
    group.tensors.push_back(member.offset < 0
                                ? at::Tensor()
                                : make_tensor(member.sizes, member.strides, member.options));
  }
  const OpTimer timer(OpKind::kCopies);
  group.mark = copier_->copy_in(copies_of(group), group.mark);
  group.state = State::kComing;
}

std::vector<at::Tensor> HostSlots::take(Handle handle) {
  prefetch(handle);
  Group& group = groups_.at(handle);
  LONGHAUL_ASSERT(group.state != State::kTaken, "a group is taken once");
  if (group.state == State::kLeaving) {  // it never left: the device still has it
    std::erase(leaving_, handle);
  }
  {
    // A leaving group, too: its owner may write over it.
    const OpTimer timer(OpKind::kCopies);
    copier_->wait(group.mark);
  }
  group.state = State::kTaken;
  keep_block(group.block);
  return std::move(group.tensors);
}

HostSlots::Block HostSlots::take_block(std::int64_t bytes) {
  if (bytes == 0) {
    return {};
  }
  const auto smaller = [](const Block& a, const Block& b) { return a.bytes < b.bytes; };
  std::sort(free_blocks_.begin(), free_blocks_.end(), smaller);
  const auto found =
      std::lower_bound(free_blocks_.begin(), free_blocks_.end(), Block{.bytes = bytes}, smaller);
  if (found != free_blocks_.end()) {
    const Block block = *found;
    free_blocks_.erase(found);
    return block;
  }
  std::int64_t wanted = bytes;
  if (row_tokens_ > 0 && row_tokens_ < budget_.largest_row) {
    wanted = static_cast<std::int64_t>(static_cast<double>(bytes) *
                                       static_cast<double>(budget_.largest_row) /
                                       static_cast<double>(row_tokens_));
  }
  const Block block{.data = nullptr,
                    .bytes = base::round_up(wanted + kBlockBytes / 2, kBlockBytes)};
  if (!free_blocks_.empty()) {  // too small for this row: what replaces it must not come on top
    drop_block(free_blocks_.back());
    free_blocks_.pop_back();
  }
  void* data = copier_->allocate(block.bytes);
  if (data == nullptr) {
    const std::int64_t free = std::int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    throw base::SystemError(
        {.where = "host memory for offloaded activations",
         .what = fmt::format("{} bytes are planned; after {} the machine gives no further {} of "
                             "page-locked memory",
                             budget_.planned_bytes, host_bytes_, block.bytes),
         .got = fmt::format("{} bytes free", free),
         .hint = "A smaller --host_memory_limit, an --activation_policy that offloads fewer layers "
                 "or more ranks ask for less"});
  }
  host_bytes_ += block.bytes;
  ++num_allocations_;
  return {data, block.bytes};
}

/// For the next group that fits.
void HostSlots::keep_block(Block& block) {
  if (block.data != nullptr) {
    free_blocks_.push_back(block);
    block = {};
  }
}

void HostSlots::drop_block(const Block& block) {
  if (block.data != nullptr) {
    copier_->release(block.data);
    host_bytes_ -= block.bytes;
  }
}

std::unique_ptr<HostCopier> cpu_host_copier() { return std::make_unique<CpuHostCopier>(); }

}  // namespace longhaul::ops
