// What a plan assumes about a device that is not measured here: its memory, and the rates that the
// parts of a training step reach on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul::plan {

/// Rate of causal attention on long documents (FLOPs of the causal half), and what a document costs
/// beyond its FLOPs: as much as if every token saw `extra_tokens` more.
struct AttentionRate {
  double flops_per_s = 0;
  double extra_tokens = 0;
};

/// Which kernels compute attention on GPUs (ops/attention_calls.h).
enum class AttentionKind { kCudnn, kFlash, kDeterministicFlash };

/// What one device sustains. The values given here were measured on H200s (docs/performance.md,
/// "How step times are predicted"); find_device() scales them to other devices.
struct DeviceRates {
  /// bf16 matrix products: 20 s of them, at the power limit.
  double product_flops_per_s = 678e12;
  /// Through 578 TFLOP/s at 8,192 tokens and 613 at 65,536.
  AttentionRate attention_forward{618e12, 572};
  /// Through 493 TFLOP/s at 8,192 tokens and 537 at 65,536.
  AttentionRate attention_backward{544e12, 846};
  /// FlashAttention-2: through 296 TFLOP/s at 8,192 tokens and 353 at 32,768.
  AttentionRate flash_forward{378e12, 2276};
  /// Through 287 TFLOP/s in documents of 7,935 tokens and 323 at 65,536.
  AttentionRate flash_backward{328e12, 1147};
  /// Adding d(q) in one order: through 153 TFLOP/s at 8,192 tokens and 162 at 32,768.
  AttentionRate deterministic_backward{165e12, 604};
  /// Bytes read and written by a copy on the device.
  double memory_bytes_per_s = 4.06e12;
  /// Page-locked memory, one direction at a time.
  double to_host_bytes_per_s = 52e9;
  double from_host_bytes_per_s = 54.5e9;
  /// Bandwidth between two devices as a multiple of an H200's NVLink (see exchange_seconds).
  double link_scale = 1;
};

/// Of the kernels of a kind.
AttentionRate forward_rate(const DeviceRates& rates, AttentionKind kind);
AttentionRate backward_rate(const DeviceRates& rates, AttentionKind kind);

/// Seconds of a message of which a rank sends `bytes`: measured on two H200s with NCCL.
double exchange_seconds(const DeviceRates& rates, double bytes);

struct DeviceFacts {
  std::string name;
  bool is_cpu = false;
  /// The rates are measured ones; else they are scaled by the data sheet and rough.
  bool is_measured = false;
  std::int64_t memory_bytes = 0;  // of one device; host memory per rank on the CPU
  double peak_flops_per_s = 0;    // dense bf16; 0 on the CPU
  DeviceRates rates{};            // of a GPU
  double flops_per_s = 0;         // model FLOP/s that one CPU rank reaches in training; 0: a GPU
};

/// What a process holds of a GPU beside its tensors, as seen on H200s: CUDA's context and kernels, and NCCL per
/// communicator.
constexpr std::int64_t kContextBytes = 1'400'000'000;
constexpr std::int64_t kCommunicatorBytes = 1'000'000'000;

/// Of the memory that tensors of a GPU may take, what a run plans with: a twentieth is left for what libraries take
/// unasked; plans have been right within a hundredth.
constexpr std::int64_t planned_share(std::int64_t usable_bytes) { return usable_bytes * 19 / 20; }

/// The same of what is free before a process starts, which holds so many communicators of NCCL.
std::int64_t plannable_bytes(std::int64_t free_bytes, std::int64_t communicators);

/// h200, h100, h20, a100-80, a100-40, a800, l40s, a6000, rtx4090, rtx3090; nothing for another
/// name.
std::optional<DeviceFacts> find_device(std::string_view name);
/// The device that its driver calls so ("NVIDIA H200"); nothing for one that is not in the table.
std::optional<DeviceFacts> device_of_driver(std::string_view driver_name);
/// Dense bf16 peak in FLOP/s of the device that its driver calls so; nothing for one whose peak is
/// not known.
std::optional<double> peak_flops_of(std::string_view driver_name);
/// Every name of the table, for messages.
std::string device_names();
/// One CPU rank with this many threads and this much memory; the rate is rough.
DeviceFacts cpu_device(std::int64_t threads, std::int64_t memory_bytes);

}  // namespace longhaul::plan
