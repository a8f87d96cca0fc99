// What a kind of device brings beside libtorch's own operators. The CPU's is built in; a GPU's comes
// with its shared object and registers itself when that is loaded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/kernel_table.h"
#include "ops/attention.h"
#include "ops/memory.h"

namespace longhaul::ops {

class HostCopier;
class SideStream;

/// Which device this is.
struct DeviceIdentity {
  std::string name;         // as its driver calls it
  std::string bus_address;  // of a GPU, as its management library wants it; else empty
};

struct Backend {
  const kernels::KernelTable* kernels = nullptr;
  /// The stream that libtorch's operators of this thread run on; null on the CPU.
  kernels::Stream (*stream)() = nullptr;
  /// As linear_onto() of ops/matmul.h in one product; null: the device has no such products. False: not of these, and nothing is
  /// written.
  bool (*linear_onto)(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                      const at::Tensor& add, const at::Tensor& y) = nullptr;
  /// As ops/attention.h promises, arguments checked.
  AttentionOutput (*attention_forward)(const at::Tensor& qkv, const AttentionShape& shape,
                                       std::span<const std::int32_t> cu_seqlens) = nullptr;
  /// One call per document and run of shape.runs; `dqkv` may be qkv, so a call's results are written
  /// when its inputs are not needed any more.
  void (*attention_backward)(const at::Tensor& dout, const at::Tensor& qkv,
                             const AttentionOutput& forward, const AttentionShape& shape,
                             std::span<const std::int32_t> cu_seqlens,
                             const at::Tensor& dqkv) = nullptr;
  /// Name and version of the attention kernels that `kernels` leads to, for the start-up print.
  std::string (*attention_name)(AttentionKernels kernels, at::ScalarType type) = nullptr;
  DeviceIdentity (*identity)() = nullptr;
  /// Bytes of the device's tensors.
  MemoryCounters (*memory)() = nullptr;
  /// Bytes that tensors of this process may take: what is free now plus what it holds.
  std::int64_t (*usable_bytes)() = nullptr;
  void (*reset_memory_peak)() = nullptr;
  /// Copies between this device and the host beside its compute (ops/host_slots.h).
  std::unique_ptr<HostCopier> (*host_copier)() = nullptr;
  /// Work beside this device's compute (ops/side_stream.h).
  std::unique_ptr<SideStream> (*side_stream)() = nullptr;
  /// As copy_bytes() below; host memory is copied at once.
  void (*copy_bytes)(void* to, const void* from, std::int64_t bytes) = nullptr;
};

/// The backend of a device; InternalError for one that nobody registered.
const Backend& backend_of(at::Device device);
inline const Backend& backend_of(const at::Tensor& tensor) { return backend_of(tensor.device()); }

/// Copies between two places of the host's memory or of a GPU's, whichever these addresses belong to;
/// a GPU's in order with the work on its stream.
void copy_bytes(void* to, const void* from, std::int64_t bytes);

/// Called once by the shared object of a GPU.
void register_backend(at::DeviceType type, const Backend& backend);

}  // namespace longhaul::ops
