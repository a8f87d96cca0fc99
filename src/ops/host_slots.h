// Kept activations in host memory: copied out behind the forward pass, fetched back ahead of the
// backward pass. A group is what one layer keeps; it travels and returns as one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace longhaul::ops {

/// Memory of a tensor as `rows` pieces of `row_bytes`, `pitch` bytes apart.
struct TensorRows {
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t pitch = 0;
  bool operator==(const TensorRows&) const = default;
};

/// Dense tensors (in any order of dimensions) are one piece. So is a matrix with a little room
/// behind its rows (ops/room.h), whose room travels along: one long copy is faster than many short
/// ones. InternalError for any other layout but a matrix with unit stride along its rows.
TensorRows rows_of(const at::Tensor& tensor);

/// One tensor's copy between the device and `host`, where its pieces lie without gaps.
struct HostCopy {
  at::Tensor device;
  TensorRows rows;
  void* host = nullptr;
};

/// What a kind of device brings: memory that its copy engines reach, and copies beside compute.
/// "Compute" is the stream that libtorch's operators of the calling thread run on.
class HostCopier {
 public:
  /// A point on a copy stream; kept as long as somebody may wait for it.
  using Mark = std::shared_ptr<void>;

  HostCopier() = default;
  HostCopier(const HostCopier&) = delete;
  HostCopier& operator=(const HostCopier&) = delete;
  virtual ~HostCopier() = default;

  /// Host memory; nullptr when the machine has no more.
  virtual void* allocate(std::int64_t bytes) = 0;
  /// Nothing may be copying to or from it any more: waits for the device.
  virtual void release(void* block) = 0;
  /// Device → host, after all that compute was given so far. The tensors must live until compute
  /// has been told to wait for the mark.
  virtual Mark copy_out(std::span<const HostCopy> copies) = 0;
  /// Host → device, after `after` and all that compute was given so far.
  virtual Mark copy_in(std::span<const HostCopy> copies, const Mark& after) = 0;
  /// What compute is given from now on starts after the mark.
  virtual void wait(const Mark& mark) = 0;
};

/// Bytes that host blocks are made for.
struct HostBudget {
  std::int64_t planned_bytes = 0;  // of all groups, for the message when there are no more
  std::int64_t largest_row = 0;    // tokens; blocks hold groups of rows up to this; 0: as they come
};

/// Keeps groups of tensors on the host. One object per model; calls come from one thread.
///
/// Order   begin(), then per layer settle() and put(); in the backward pass prefetch() and take().
/// Units   at most two groups are on their way in each direction: settle() holds compute until one
///         group at most is still leaving, and a prefetch() is followed by its take() before the
///         second next. Blocks are kept for the next step, so only larger rows allocate.
/// Errors  SystemError when the host has no more memory
class HostSlots {
 public:
  using Handle = std::size_t;

  HostSlots(std::unique_ptr<HostCopier> copier, HostBudget budget);
  HostSlots(const HostSlots&) = delete;
  HostSlots& operator=(const HostSlots&) = delete;
  ~HostSlots();

  /// Starts a row of `row_tokens`; groups that nobody took (after a fault) are dropped.
  void begin(std::int64_t row_tokens);
  /// Frees the device memory of all groups on their way out but the last one put.
  void settle();
  /// Starts copying the tensors out (undefined ones stay undefined); their device memory is freed by
  /// a later settle(). Nobody else may write to them.
  Handle put(std::vector<at::Tensor> tensors);
  /// Starts copying a group back.
  void prefetch(Handle handle);
  /// The group as it was put, with its strides and the room behind its rows. Once per handle;
  /// without a prefetch() compute waits for the whole copy.
  std::vector<at::Tensor> take(Handle handle);

  /// Bytes of all blocks.
  [[nodiscard]] std::int64_t host_bytes() const { return host_bytes_; }
  /// Blocks made since the beginning.
  [[nodiscard]] std::int64_t num_allocations() const { return num_allocations_; }

 private:
  struct Block {
    void* data = nullptr;
    std::int64_t bytes = 0;
  };
  enum class State { kLeaving, kOnHost, kComing, kTaken };
  /// How to make one tensor of a group again, and where its bytes lie in the group's block.
  struct Member {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    at::TensorOptions options;
    TensorRows rows;
    std::int64_t offset = -1;  // −1: undefined
  };
  struct Group {
    State state = State::kLeaving;
    std::vector<Member> members;
    std::vector<at::Tensor> tensors;  // while leaving, and from prefetch() on
    Block block;
    HostCopier::Mark mark;  // of the last copy
  };

  [[nodiscard]] static std::vector<HostCopy> copies_of(const Group& group);
  Block take_block(std::int64_t bytes);
  void keep_block(Block& block);
  void drop_block(const Block& block);

  std::unique_ptr<HostCopier> copier_;
  HostBudget budget_;
  std::int64_t row_tokens_ = 0;
  std::vector<Group> groups_;
  std::deque<Handle> leaving_;
  std::vector<Block> free_blocks_;
  std::int64_t host_bytes_ = 0;
  std::int64_t num_allocations_ = 0;
};

/// Copies at once, from and to other host memory: the logic above without a GPU.
std::unique_ptr<HostCopier> cpu_host_copier();

}  // namespace longhaul::ops
