// What a plan assumes about devices that are not measured: memory and the rate that a training step
// reaches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul::plan {

struct DeviceFacts {
  std::string name;
  bool is_cpu = false;
  std::int64_t memory_bytes = 0;  // of one device; host memory per rank on the CPU
  double flops_per_s = 0;         // model FLOP/s that one device reaches in training
};

/// h200, h100, h20, a100-80, a100-40, a800, l40s, a6000, rtx4090, rtx3090; nothing for another
/// name.
std::optional<DeviceFacts> find_device(std::string_view name);
/// Dense bf16 peak in FLOP/s of the device that its driver calls so ("NVIDIA H200"); nothing for one
/// whose peak is not known.
std::optional<double> peak_flops_of(std::string_view driver_name);
/// Every name of the table, for messages.
std::string device_names();
/// One CPU rank with this many threads and this much memory; the rate is rough.
DeviceFacts cpu_device(std::int64_t threads, std::int64_t memory_bytes);

}  // namespace longhaul::plan
