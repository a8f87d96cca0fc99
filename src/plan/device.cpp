#include "plan/device.h"

#include <array>

namespace longhaul::plan {
namespace {

struct DeviceRow {
  std::string_view name;
  double memory_gb;    // 1e9 bytes
  double peak_tflops;  // dense bf16
};

constexpr std::array kDevices = {
    DeviceRow{"h200", 141, 989},   DeviceRow{"h100", 80, 989},    DeviceRow{"h20", 96, 148},
    DeviceRow{"a100-80", 80, 312}, DeviceRow{"a100-40", 40, 312}, DeviceRow{"a800", 80, 312},
    DeviceRow{"l40s", 48, 362},    DeviceRow{"a6000", 48, 155},   DeviceRow{"rtx4090", 24, 165},
    DeviceRow{"rtx3090", 24, 71},
};

/// A driver's names of devices in the table; boards of other forms (NVL, PCIe) have other peaks.
struct DriverName {
  std::string_view text;
  std::string_view name;
};
constexpr std::array kDriverNames = {
    DriverName{"NVIDIA H200", "h200"},
    DriverName{"NVIDIA H100 80GB HBM3", "h100"},
    DriverName{"NVIDIA H20", "h20"},
    DriverName{"NVIDIA A100-SXM4-80GB", "a100-80"},
    DriverName{"NVIDIA A100 80GB PCIe", "a100-80"},
    DriverName{"NVIDIA A100-SXM4-40GB", "a100-40"},
    DriverName{"NVIDIA A100-PCIE-40GB", "a100-40"},
    DriverName{"NVIDIA A800-SXM4-80GB", "a800"},
    DriverName{"NVIDIA L40S", "l40s"},
    DriverName{"NVIDIA RTX A6000", "a6000"},
    DriverName{"NVIDIA GeForce RTX 4090", "rtx4090"},
    DriverName{"NVIDIA GeForce RTX 3090", "rtx3090"},
};

/// Share of the peak that a long-sequence step reaches.
constexpr double kModelFlopsShare = 0.44;
/// FLOP/s of one CPU thread over a whole step in fp32: half of what its matrix products alone
/// reach.
constexpr double kCpuThreadFlops = 60e9;

}  // namespace

std::optional<DeviceFacts> find_device(std::string_view name) {
  for (const DeviceRow& row : kDevices) {
    if (row.name == name) {
      return DeviceFacts{.name = std::string(name),
                         .memory_bytes = static_cast<std::int64_t>(row.memory_gb * 1e9),
                         .flops_per_s = row.peak_tflops * 1e12 * kModelFlopsShare};
    }
  }
  return std::nullopt;
}

std::optional<double> peak_flops_of(std::string_view driver_name) {
  for (const DriverName& row : kDriverNames) {
    if (row.text == driver_name) {
      return find_device(row.name)->flops_per_s / kModelFlopsShare;
    }
  }
  return std::nullopt;
}

std::string device_names() {
  std::string names;
  for (const DeviceRow& row : kDevices) {
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  return names;
}

DeviceFacts cpu_device(std::int64_t threads, std::int64_t memory_bytes) {
  return {.name = "cpu",
          .is_cpu = true,
          .memory_bytes = memory_bytes,
          .flops_per_s = kCpuThreadFlops * static_cast<double>(threads)};
}

}  // namespace longhaul::plan
